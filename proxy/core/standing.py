"""Whether a region can be relied on: well, left, or tried again.

Decides: when a region is left, and when it is used again.
Must not know: edges, links, load, clocks (`now` is an argument).
Invariants: a region that was left has looked well for `recovery_s` without a break, and then answered one request,
before it gets its traffic back: one that comes and goes isn't used, so requests don't flap with it. A region that has
never been there is not "left": the first time, it is used at once.

    well --gone, or FAILURES_MAX in a row--> left --looked well for recovery_s--> due --one request--> well
                                              ^------------ gone, or a failure ----------|
"""

from __future__ import annotations

from typing import Literal

Turn = Literal["left", "returned"]
FAILURES_MAX = 5  # attempts in a row that failed, with none that succeeded between


class Standing:
    """Single writer of one region's standing."""

    __slots__ = ("available", "failures", "tried", "well", "well_since")

    def __init__(self) -> None:
        self.well = True
        self.available = False
        self.failures = 0
        self.tried = False  # the one request is under way
        self.well_since = 0.0  # of a left region: since when it looks well

    def due(self, now: float, recovery_s: float) -> bool:
        """Whether one request may try a region that was left."""
        return self.available and not self.tried and now - self.well_since >= recovery_s

    def see(self, available: bool, now: float) -> Turn | None:
        """What the links say: any edge there, or none."""
        was, self.available = self.available, available
        if was and not available and self.well:
            return self._leave(now)
        if not was or not available:
            self.well_since = now
        return None

    def try_once(self) -> None:
        """A request goes to a region that was left."""
        self.tried = True

    def ended(self, ok: bool | None, now: float, recovery_s: float) -> Turn | None:
        """An attempt there ended; None = in a way that tells nothing."""
        tried, self.tried = self.tried, False
        if ok is None:
            return None
        if ok:
            self.failures = 0
            if self.well or not tried or not self.available or now - self.well_since < recovery_s:
                return None
            self.well = True
            return "returned"
        self.failures += 1
        if not self.well:
            self.well_since = now
        elif self.failures >= FAILURES_MAX:
            return self._leave(now)
        return None

    def _leave(self, now: float) -> Turn:
        self.well = self.tried = False
        self.well_since = now
        return "left"
