"""Whether newcomers wait a moment for company, to be encoded together.

Decides: if this plan takes newcomers in, or leaves it to the next.
Must not know: who they are.
Rules: decoding never waits, and an idle engine takes in at once. While others decode, newcomers are held over to the
next plan if that comes before `window_s` have passed since the first of them was held, and if someone else is expected
to arrive by then. So the window is 0 where steps are longer than it (any CPU), or arrivals are rare.
"""

from __future__ import annotations

GAP_MAX_S = 1.0
MEMORY = 5  # arrivals


class EncodeWindow:
    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._gap_s = GAP_MAX_S
        self._arrived: float | None = None
        self._held: float | None = None

    def arrive(self, now: float) -> None:
        """Someone came."""
        if self._arrived is not None:
            self._gap_s += (min(now - self._arrived, GAP_MAX_S) - self._gap_s) / MEMORY
        self._arrived = now

    def hold(self, now: float, step_s: float) -> bool:
        """Whether newcomers are held over. step_s: predicted time of a step without them, 0 when nobody decodes."""
        since = now if self._held is None else self._held
        wait = step_s > 0.0 and self._gap_s < step_s and now + step_s - since <= self._window_s
        self._held = since if wait else None
        return wait
