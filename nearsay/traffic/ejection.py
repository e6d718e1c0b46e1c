"""Outlier ejection: which members of a pool are left out for a while, for failing or being far slower than the rest.

Decides: whether a member is out, for how long, and when one request may try it again.
Must not know: requests, links, clocks (`now` is an argument, monotonic seconds); what counts as good or bad is its
caller's to say, but for slowness: `slow_from_s`. A client's own error is neither good nor bad, and isn't told.
Invariants: at most `ejected_share_max` of the members are out; a member that is out gets one request at a time, after
its time; only that request's outcome changes its state; times grow from `ejection_s` to `ejection_s_max`.
Consecutive failures, success rate against the pool's, the cap and growing times are Envoy's outlier detection; probing
with a single request is Finagle's failure accrual. Median in place of Envoy's mean and deviation: pools are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import median
from typing import Literal

import msgspec

from nearsay.traffic.mode import Mode

State = Literal["in", "out", "probed"]
Event = Literal["ejected", "readmitted", ""]


class EjectionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Defaults suit pools of two and more, and latencies of milliseconds to seconds."""

    mode: Mode = "on"
    bad_in_a_row: int = 5  # so many bad outcomes without a good one between them
    bad_for_s: float = 0.5  # and for so long: what was under way during one stall, or at a restart, is one event
    bad_share_excess: float = 0.3  # or a share of bad ones this much above the pool's median
    requests_min: float = 20.0  # of recent outcomes, before a share means anything
    recent_s: float = 10.0  # time constant of what is recent
    slow_factor: float = 5.0  # an answer that took so many times the pool's median is bad
    slow_excess_ms: float = 50.0  # if that is at least so much
    ejected_share_max: float = 0.5
    panic_share: float = 0.5  # with fewer members left than this, ejection is ignored
    ejection_s: float = 2.0
    ejection_s_max: float = 60.0
    forget_s: float = 60.0  # a member that stayed in for so long begins at `ejection_s` again

    def __post_init__(self) -> None:
        assert self.bad_in_a_row > 0 and 0 < self.ejection_s <= self.ejection_s_max and self.recent_s > 0
        assert 0 <= self.ejected_share_max < 1 and self.slow_factor > 1


def slow_from_s(usual_s: float, rules: EjectionRules) -> float:
    """An answer that takes longer is bad where `usual_s` is the pool's median for such requests."""
    return max(rules.slow_factor * usual_s, usual_s + rules.slow_excess_ms / 1000.0)


def panics(left: int, members: int, rules: EjectionRules) -> bool:
    """Whether so few members are left that it is better to ask those that are out, too."""
    return left < rules.panic_share * members


class Member:
    """One member's standing. Only its Ejector writes."""

    __slots__ = ("bad", "bad_since", "changed_at", "counted_at", "in_a_row", "state", "times", "total", "until")

    def __init__(self, now: float) -> None:
        self.state: State = "in"
        self.until = now  # of "out": when it may be probed
        self.times = 0  # ejections since it was last forgiven
        self.changed_at = now
        self.in_a_row = 0
        self.bad_since = now  # of the row
        self.total = self.bad = 0.0  # recent outcomes, each fading from 1
        self.counted_at = now


class Ejector:
    """Members of one pool. In dark mode their states change as they would, and nobody is left out."""

    def __init__(self, rules: EjectionRules) -> None:
        self._rules = rules
        self._members: list[Member] = []

    def join(self, now: float) -> Member:
        """A new member of the pool."""
        member = Member(now)
        self._members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """It is no longer of the pool."""
        self._members.remove(member)

    @property
    def out(self) -> int:
        """Members that are out."""
        return sum(member.state != "in" for member in self._members)

    def is_out(self, member: Member) -> bool:
        """Whether it gets no ordinary requests."""
        return self._rules.mode == "on" and member.state != "in"

    def due(self, member: Member, now: float) -> bool:
        """Whether a request should be sent there to see."""
        return self._rules.mode == "on" and member.state == "out" and now >= member.until

    def begin(self, member: Member, now: float) -> bool:
        """A request goes there; whether it is the one that finds out. `end_probe` follows then, else `observe`."""
        if member.state != "out" or now < member.until:
            return False
        member.state = "probed"
        return True

    def end_probe(self, member: Member, bad: bool | None, now: float) -> Event:
        """How the probe ended; None: it says nothing, the next request is a probe again."""
        assert member.state == "probed"
        if bad is None:
            member.state = "out"
            return ""
        if bad:
            return self._eject(member, now)
        member.state, member.changed_at = "in", now
        member.in_a_row, member.total, member.bad = 0, 0.0, 0.0
        return "readmitted"

    def observe(self, member: Member, bad: bool, now: float) -> Event:
        """How an ordinary request ended. Requests that were under way when it was ejected change nothing."""
        if self._rules.mode == "off" or member.state != "in":
            return ""
        self._count(member, bad, now)
        if not bad or not self._is_outlier(member, now) or not self._may_eject():
            return ""
        if now - member.changed_at >= self._rules.forget_s:
            member.times = 0
        return self._eject(member, now)

    def _eject(self, member: Member, now: float) -> Event:
        member.times += 1
        time_s = min(self._rules.ejection_s * 2.0 ** min(member.times - 1, 32), self._rules.ejection_s_max)
        member.state, member.until, member.changed_at = "out", now + time_s, now
        return "ejected"

    def _count(self, member: Member, bad: bool, now: float) -> None:
        weight = exp(-max(0.0, now - member.counted_at) / self._rules.recent_s)
        member.total = member.total * weight + 1.0
        member.bad = member.bad * weight + bad
        member.counted_at = max(now, member.counted_at)
        if not bad:
            member.in_a_row = 0
            return
        if not member.in_a_row:
            member.bad_since = now
        member.in_a_row += 1

    def _is_outlier(self, member: Member, now: float) -> bool:
        others = _bad_share([other for other in self._members if other is not member and other.state == "in"])
        if member.in_a_row >= self._rules.bad_in_a_row and now - member.bad_since >= self._rules.bad_for_s:
            return others < 0.5  # where most of what the others do is bad, this one is no exception
        if member.total < self._rules.requests_min:
            return False
        return member.bad / member.total >= others + self._rules.bad_share_excess

    def _may_eject(self) -> bool:
        return self.out + 1 <= self._rules.ejected_share_max * len(self._members)


def _bad_share(members: Sequence[Member]) -> float:
    """Median of the shares of bad outcomes; those without outcomes count as good."""
    return median([member.bad / member.total if member.total >= 1.0 else 0.0 for member in members] or [0.0])
