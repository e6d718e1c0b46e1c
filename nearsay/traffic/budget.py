"""Retry budget: extra attempts are paid for by first attempts, so that retries can't multiply an overload.

Decides: whether one more attempt may be made now.
Must not know: requests, errors, peers, clocks (`now` is an argument, monotonic seconds).
Invariants: within any `ttl_s` the attempts granted are at most ratio * requests + floor_per_s * ttl_s (to one window's
precision); memory is WINDOWS numbers, whatever the traffic.
After Finagle's RetryBudget; the reason is in Beyer et al., "Site Reliability Engineering", 2016, chapter 21.
"""

from __future__ import annotations

WINDOWS = 10


class RetryBudget:
    """`ratio` of a retry for each request, and `floor_per_s` for services with little traffic; both expire."""

    __slots__ = ("_floor", "_latest", "_ratio", "_sums", "_window_s")

    def __init__(self, *, ratio: float, floor_per_s: float, ttl_s: float, now: float) -> None:
        assert ratio >= 0 and floor_per_s >= 0 and ttl_s > 0
        self._ratio = ratio
        self._floor = floor_per_s * ttl_s
        self._window_s = ttl_s / WINDOWS
        self._sums = [0.0] * WINDOWS
        self._latest = self._window(now)

    def deposit(self, now: float) -> None:
        """Count one request that isn't a retry."""
        self._turn(now)
        self._sums[self._latest % WINDOWS] += self._ratio

    def withdraw(self, now: float) -> bool:
        """Take one retry out, if there is one."""
        if self.balance(now) < 1.0:
            return False
        self._sums[self._latest % WINDOWS] -= 1.0
        return True

    def balance(self, now: float) -> float:
        """Retries that could be made now."""
        self._turn(now)
        return self._floor + sum(self._sums)

    def _window(self, now: float) -> int:
        return int(now // self._window_s)

    def _turn(self, now: float) -> None:
        """Empty the windows that have expired since the last call."""
        window = self._window(now)
        for expired in range(self._latest + 1, min(window, self._latest + WINDOWS) + 1):
            self._sums[expired % WINDOWS] = 0.0
        self._latest = max(self._latest, window)
