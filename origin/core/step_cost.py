"""What a step will cost: base + rows * row + tokens * token, fitted as it runs (nearsay/traffic/linear_cost.py).

Decides: the seconds that a model's share of a step is expected to take.
Must not know: clocks, sequences, what the prediction is used for.
Invariants: coefficients are never negative, the base never zero.
"""

from __future__ import annotations

from typing import NamedTuple

from nearsay.traffic.linear_cost import LinearCost

PRIOR = (5e-3, 1e-4, 1e-4)  # a small model on one core, until it has been measured
SCALES = (1.0, 16.0, 64.0)
BASE_MIN_S = 1e-6


class Work(NamedTuple):
    """One model's share of a step. rows: slots taken on. tokens: ids read beside them (sources, drafts, replays)."""

    rows: int = 0
    tokens: int = 0


class StepCost:
    """The fit. `memory_steps`: about how many observations it rests on."""

    def __init__(self, memory_steps: int = 200) -> None:
        self._fit = LinearCost(PRIOR, SCALES, memory=memory_steps, first_min=BASE_MIN_S)

    def __repr__(self) -> str:
        base, row, token = (f"{seconds * 1e3:.4g}" for seconds in self._fit.factors)
        return f"<StepCost {base} + {row} * rows + {token} * tokens ms, {self.seen} seen>"

    @property
    def seen(self) -> int:
        """Observations so far."""
        return self._fit.seen

    @property
    def base_s(self) -> float:
        return self._fit.factors[0]

    @property
    def row_s(self) -> float:
        return self._fit.factors[1]

    @property
    def token_s(self) -> float:
        return self._fit.factors[2]

    def predict(self, work: Work) -> float:
        """Seconds; 0 for no rows."""
        base, row, token = self._fit.factors
        return base + row * work.rows + token * work.tokens if work.rows else 0.0

    def observe(self, work: Work, seconds: float) -> None:
        """Learn what `work` took. Times that can't be are passed over."""
        if work.rows > 0:
            self._fit.observe((1.0, *work), seconds)
