"""Adaptive concurrency: how many requests one peer may have at once, found from how long they queue there.

Decides: the limit, and how much of it one user may take.
Must not know: requests, peers, queues, clocks (`now` is an argument, monotonic seconds).
Invariants: `limit_min` <= limit <= `limit_max`; a limit that isn't reached doesn't grow; one update moves it by at most
half; requests that teach nothing (cancelled, long texts) aren't told.
The gradient rule of Netflix's concurrency-limits (Gradient2, 2018): new = limit * gradient + sqrt(limit), smoothed. Its
gradient compares a latency with a long-run average, which drifts with a lasting overload; a peer of ours says how much
of its time a request queued, so ours is tolerance * (busy / (busy + queued)), exact from the first sample on.
A refusal cuts the limit at once, as a lost packet does in TCP (Jacobson 1988). A user's part is a multiple of the room
that is left, so that some always is: Choudhury and Hahne, "Dynamic Queue Length Thresholds", IEEE/ACM ToN 6(2), 1998.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, sqrt

import msgspec

from nearsay.traffic.mode import Mode

REFUSED_FACTOR = 0.9
ROUNDING = 1e-9


class ConcurrencyRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`limit_min` keeps a peer that batches busy: one full batch runs while the next one forms."""

    mode: Mode = "on"
    limit_first: int = 64
    limit_min: int = 32
    limit_max: int = 1024
    tolerance: float = 1.25  # time there over busy time, up to which the limit may grow
    share_max: float = 0.8  # of the limit for one user; the more there are, the less each, and room is left
    alone_s: float = 60.0  # but all of it for one who has been alone for so long
    smoothing: float = 0.2  # share of the newest estimate
    samples_min: int = 10  # in one update
    update_s: float = 0.1  # at least, between updates

    def __post_init__(self) -> None:
        assert 1 <= self.limit_min <= self.limit_first <= self.limit_max
        assert (
            self.tolerance >= 1
            and 0 < self.share_max < 1
            and 0 < self.smoothing <= 1
            and self.samples_min > 0
            and self.update_s > 0
        )


class Users:
    """Who has how many of one peer's requests in flight."""

    __slots__ = ("_counts", "_last", "_rules", "_turned_at", "in_flight")

    def __init__(self, rules: ConcurrencyRules) -> None:
        self.in_flight = 0
        self._rules = rules
        self._counts: dict[Hashable, int] = {}
        self._last: Hashable = None
        self._turned_at = -inf  # when a user came who wasn't the one before

    def enter(self, user: Hashable, now: float) -> None:
        """One request more of this user."""
        if user != self._last:
            self._turned_at = -inf if self._last is None else now
            self._last = user
        self.in_flight += 1
        self._counts[user] = self._counts.get(user, 0) + 1

    def leave(self, user: Hashable) -> None:
        """One request less of this user."""
        assert self.in_flight > 0
        self.in_flight -= 1
        self._counts[user] -= 1
        if not self._counts[user]:
            del self._counts[user]

    def has_room(self, user: Hashable, limit: int, now: float) -> bool:
        """Whether the limit lets one request more of this user in."""
        free, share = limit - self.in_flight, self._rules.share_max
        if user == self._last and now - self._turned_at > self._rules.alone_s:
            return free > 0
        return self._counts.get(user, 0) * (1.0 - share) + ROUNDING < share * free


class GradientLimit:
    """The limit of one peer."""

    __slots__ = ("_busy_s", "_estimate", "_in_flight", "_queued_s", "_rules", "_samples", "_updated_at")

    def __init__(self, rules: ConcurrencyRules, now: float) -> None:
        self._rules = rules
        self._estimate = float(rules.limit_first)
        self._updated_at = now
        self._samples = self._in_flight = 0
        self._busy_s = self._queued_s = 0.0

    @property
    def limit(self) -> int:
        """Requests that may be there at once."""
        return int(self._estimate)

    def observe(self, busy_s: float, queued_s: float, in_flight: int, now: float) -> None:
        """One answer: of its time there `queued_s` in queues, beside `in_flight` requests, itself among them."""
        self._samples += 1
        self._busy_s += max(0.0, busy_s)
        self._queued_s += max(0.0, queued_s)
        self._in_flight = max(self._in_flight, in_flight)
        if self._samples >= self._rules.samples_min and now - self._updated_at >= self._rules.update_s:
            self._update(now)

    def refused(self) -> None:
        """The peer had no room for one more."""
        self._set(self._estimate * REFUSED_FACTOR)

    def _update(self, now: float) -> None:
        rules, whole_s = self._rules, self._busy_s + self._queued_s
        if 2 * self._in_flight >= self._estimate and whole_s > 0:
            gradient = min(1.0, max(0.5, rules.tolerance * self._busy_s / whole_s))
            target = self._estimate * gradient + sqrt(self._estimate)
            self._set(self._estimate + rules.smoothing * (target - self._estimate))
        self._updated_at = now
        self._samples = self._in_flight = 0
        self._busy_s = self._queued_s = 0.0

    def _set(self, estimate: float) -> None:
        self._estimate = min(float(self._rules.limit_max), max(float(self._rules.limit_min), estimate))
