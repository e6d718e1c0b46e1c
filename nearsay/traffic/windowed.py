"""Quantiles of the recent past: a sketch that forgets.

Decides: what is recent. Time is cut into windows; the newest `windows` of them count, and an old one goes as a whole.
Must not know: what is measured, clocks (`now` is an argument, monotonic seconds).
Invariants: memory is `windows` sketches, whatever the traffic; a value counts for at least (windows - 1) * window_s and
at most windows * window_s; a quantile is of all values but the newest 1/REFRESH_SHARE of them, so that asking is cheap.
"""

from __future__ import annotations

from collections import deque

from nearsay.traffic.quantiles import QuantileSketch

REFRESH_SHARE = 32


class WindowedSketch:
    """Quantiles within 2 % of the values of the last `windows * window_s` seconds."""

    __slots__ = ("_known", "_latest", "_older", "_sketches", "_stale_at", "_window_s", "_windows")

    def __init__(self, *, window_s: float, windows: int, now: float) -> None:
        assert window_s > 0 and windows >= 2
        self._window_s = window_s
        self._windows = windows
        self._latest = int(now // window_s)
        self._sketches: deque[QuantileSketch] = deque([QuantileSketch()], maxlen=windows)
        self._older = 0  # values in all windows but the newest
        self._known: dict[float, float] = {}
        self._stale_at = 0  # `_known` holds until so many values are counted

    def add(self, value: float, now: float) -> None:
        """Count one value. Raises ValueError for NaN and infinity."""
        self._turn(now)
        self._sketches[-1].add(value)

    def count(self, now: float) -> int:
        """Values that count now."""
        self._turn(now)
        return self._older + self._sketches[-1].count

    def quantile(self, q: float, now: float) -> float:
        """Value at rank `q` in [0, 1]; 0.0 when nothing was counted."""
        count = self.count(now)
        if count >= self._stale_at:
            self._known.clear()
            self._stale_at = count + max(1, count // REFRESH_SHARE)
        if q not in self._known:
            merged = QuantileSketch()
            for sketch in self._sketches:
                merged.merge(sketch)
            self._known[q] = merged.quantile(q)
        return self._known[q]

    def _turn(self, now: float) -> None:
        """Begin the windows that have come since the last call."""
        window = int(now // self._window_s)
        if window <= self._latest:
            return
        for _ in range(min(window - self._latest, self._windows)):
            self._sketches.append(QuantileSketch())
        self._latest = window
        self._older = sum(sketch.count for sketch in self._sketches)  # the newest is empty yet
        self._known.clear()
        self._stale_at = 0
