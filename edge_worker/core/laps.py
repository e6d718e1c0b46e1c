"""Where the time of one segment went, as laps that leave no gap.

Decides: which stage a stretch of time is charged to. Must not know: clocks (`now` is an argument, monotonic seconds).
Invariant: the stages add up to `last - started`, except for what `far` leaves to another process to explain.
"""

from __future__ import annotations

from collections.abc import Mapping


class Laps:
    """A stopwatch: each lap ends where the next begins."""

    __slots__ = ("last", "ms")

    def __init__(self, now: float) -> None:
        self.last = now
        self.ms: dict[str, float] = {}

    def lap(self, stage: str, now: float) -> None:
        """Charge the time since the last lap to `stage`."""
        self.ms[stage] = self.ms.get(stage, 0.0) + (now - self.last) * 1000.0
        self.last = now

    def far(self, link: str, accounted_ms: float, stages_ms: Mapping[str, float], now: float) -> None:
        """Charge the time since the last lap to another process's `stages_ms`, and the rest of it to `link`.

        What that process accounts for beyond its stages stays uncharged, so that it shows as unaccounted further up.
        """
        elapsed = (now - self.last) * 1000.0
        share = min(1.0, elapsed / accounted_ms) if accounted_ms > 0 else 1.0  # less of a run that was joined late
        for stage, ms in stages_ms.items():
            self.ms[stage] = self.ms.get(stage, 0.0) + ms * share
        self.ms[link] = self.ms.get(link, 0.0) + max(0.0, elapsed - accounted_ms)
        self.last = now

    def fork(self) -> Laps:
        """A copy that goes on by itself: for work that runs beside the rest of its segment."""
        copy = Laps(self.last)
        copy.ms = dict(self.ms)
        return copy

    def take(self, other: Laps) -> None:
        """Go on from `other`, the fork that turned out to be the critical path."""
        self.last, self.ms = other.last, other.ms
