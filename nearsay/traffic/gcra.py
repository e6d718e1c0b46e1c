"""A rate with a burst: so many units a second, so many at once.

Decides: whether a cost fits now, and how long it has to wait.
Must not know: who pays, what a unit is, clocks (`now` is an argument, monotonic seconds).
Invariants: in any span of s seconds at most burst + rate * s units are charged, or by so much more as one charge is
larger than the burst: such a charge isn't impossible, it needs a full bucket and is paid off before the next one.
The generic cell rate algorithm (ITU-T I.371, 1993): the whole state is the instant at which the bucket is full again.
"""

from __future__ import annotations

_ROUNDING_S = 1e-9  # who comes back after the time it was told must not wait for a rounding error


class Gcra:
    """`full_at`: when nothing is owed any more."""

    __slots__ = ("_burst_s", "full_at", "rate")

    def __init__(self, *, rate: float, burst: float, full_at: float) -> None:
        assert rate > 0 and burst > 0
        self.rate = rate
        self.full_at = full_at
        self._burst_s = burst / rate

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` fits, 0 when it does now."""
        owed_s = self.full_at - now
        if owed_s <= _ROUNDING_S:
            return 0.0
        late_s = owed_s + cost / self.rate - self._burst_s
        return min(late_s, owed_s) if late_s > _ROUNDING_S else 0.0

    def charge(self, cost: float, now: float) -> None:
        """Take `cost` out, whether it fits or not."""
        self.full_at = max(self.full_at, now) + cost / self.rate

    def left(self, now: float) -> float:
        """Units that fit now."""
        return max(0.0, self._burst_s - max(0.0, self.full_at - now)) * self.rate
