"""The learning rate over a run: up in a short warm-up, level, then straight down to a fraction of the peak."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """peak: the highest rate. warm_up: steps. level: the share of the run after which the rate starts to fall."""

    peak: float = 8e-4
    warm_up: int = 100
    level: float = 0.1
    last: float = 0.02

    def rate(self, step: int, progress: float) -> float:
        """step: since the start or the last resume, from 0. progress: the share of the run's tokens seen, 0 to 1."""
        warm = min(1.0, (step + 1) / self.warm_up)
        fall = min(1.0, max(0.0, (progress - self.level) / (1 - self.level)))
        return self.peak * warm * (1 - (1 - self.last) * fall)
