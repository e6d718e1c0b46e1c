"""Controlled delay: whether a queue is only a burst, or stands; and who is shed where it stands.

Decides: whether a request that leaves the queue now is worth serving.
Must not know: requests, what the queue is for, clocks (`now` is an argument, monotonic seconds).
Invariants: nothing is shed before every request of a whole interval has waited longer than the target; one that waited
no longer than the target ends that; what waited less than twice the target is never shed.
Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012 (RFC 8289), for telling a standing queue. They
shed one packet at a growing rate and wait for TCP to slow down; our clients don't, so all that is too old goes at once,
as in Maurer, "Fail at Scale", ACM Queue 13(8), 2015.
"""

from __future__ import annotations

SHED_AFTER_TARGETS = 2.0


class CoDel:
    """State of one queue. Defaults are for people who wait; a router's would be 5 and 100 ms."""

    __slots__ = ("_above_since", "_interval_s", "_target_s")

    def __init__(self, *, target_s: float, interval_s: float) -> None:
        assert target_s > 0 and interval_s > 0
        self._target_s = target_s
        self._interval_s = interval_s
        self._above_since: float | None = None

    def shed(self, waited_s: float, now: float) -> bool:
        """Whether one that waited so long, and leaves the queue now, should be refused. Call for each that leaves."""
        if waited_s <= self._target_s:
            self._above_since = None
            return False
        if self._above_since is None:
            self._above_since = now
        standing = now - self._above_since >= self._interval_s
        return standing and waited_s > SHED_AFTER_TARGETS * self._target_s
