"""Where a request's time went: laps of one clock, so that the stages sum to the whole by construction."""

from __future__ import annotations

from collections.abc import Mapping

from nearsay.runtime.clock import Clock


class StageClock:
    """Each `lap` ends a stage that began where the last one ended; a stage may have several laps."""

    def __init__(self, clock: Clock) -> None:
        self.stages_ms: dict[str, float] = {}
        self._clock = clock
        self._began = self._last = clock()

    def lap(self, stage: str) -> float:
        """Charge the time since the last lap to a stage; returns it in ms."""
        now = self._clock()
        passed_ms, self._last = (now - self._last) * 1e3, now
        self.stages_ms[stage] = self.stages_ms.get(stage, 0.0) + passed_ms
        return passed_ms

    def charge(self, stages_ms: Mapping[str, float], rest: str) -> None:
        """End a stage that somebody else accounts for: their stages, and what they leave of it is `rest`.

        Stages that sum to more than passed here (two clocks) make `rest` negative: the total stays true.
        """
        self.lap(rest)
        for stage, ms in stages_ms.items():
            self.stages_ms[stage] = self.stages_ms.get(stage, 0.0) + ms
            self.stages_ms[rest] -= ms

    def total_ms(self) -> float:
        """From the start to the last lap."""
        return (self._last - self._began) * 1e3
