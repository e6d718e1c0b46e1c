"""What a step will cost: base + rows * row + tokens * token, fitted as it runs.

Decides: the seconds that a model's share of a step is expected to take.
Must not know: clocks, sequences, what the prediction is used for.
Invariants: coefficients are never negative, the base never zero; one observation moves a prediction by a bounded
share, however wrong it is; a feature that is absent from an observation keeps its coefficient.
Method: exponentially weighted least squares on relative errors with Huber's pseudo-values (1964); the normal equations
are solved by a few sweeps of projected coordinate descent from the last solution, so that nothing winds up while, say,
only one row runs for an hour.
"""

from __future__ import annotations

from typing import NamedTuple

PRIOR = (5e-3, 1e-4, 1e-4)  # a small model on one core, until it has been measured
SCALES = (1.0, 16.0, 64.0)
PRIOR_WEIGHT = 0.01  # of one observation
BASE_MIN_S = 1e-6
SECONDS_MAX = 60.0
HUBER = 2.0  # typical relative errors; what lies further out counts as if it lay there
ERROR_MEMORY = 20
ERROR_RESTART = 0.5  # a typical relative error like this means that the machine or the model has changed
SEEN_RESTART = 4
SWEEPS = 2


class Work(NamedTuple):
    """One model's share of a step. rows: slots taken on. tokens: ids read beside them (sources, drafts, replays)."""

    rows: int = 0
    tokens: int = 0


class StepCost:
    """The fit. `memory_steps`: about how many observations it rests on."""

    def __init__(self, memory_steps: int = 200) -> None:
        assert memory_steps > SEEN_RESTART
        self._memory = memory_steps
        self._theta = list(PRIOR)
        weight = PRIOR_WEIGHT / PRIOR[0] ** 2
        self._gram = [[weight * SCALES[i] ** 2 if i == j else 0.0 for j in range(3)] for i in range(3)]
        self._moment = [self._gram[i][i] * PRIOR[i] for i in range(3)]
        self._error = 1.0  # typical relative error
        self._age = 0
        self.seen = 0

    def __repr__(self) -> str:
        base, row, token = (f"{seconds * 1e3:.4g}" for seconds in self._theta)
        return f"<StepCost {base} + {row} * rows + {token} * tokens ms, {self.seen} seen>"

    @property
    def base_s(self) -> float:
        return self._theta[0]

    @property
    def row_s(self) -> float:
        return self._theta[1]

    @property
    def token_s(self) -> float:
        return self._theta[2]

    def predict(self, work: Work) -> float:
        """Seconds; 0 for no rows."""
        base, row, token = self._theta
        return base + row * work.rows + token * work.tokens if work.rows else 0.0

    def observe(self, work: Work, seconds: float) -> None:
        """Learn what `work` took. Times that can't be are passed over."""
        if not (work.rows > 0 and 0.0 < seconds < float("inf")):
            return
        expected = self.predict(work)
        error = min(seconds, SECONDS_MAX) / expected - 1.0
        bound = HUBER * self._error
        target = expected * (1.0 + max(-bound, min(bound, error)))
        self._error += (min(abs(error), 1.0) - self._error) / ERROR_MEMORY
        self._age = min(self._age, SEEN_RESTART) if self._error > ERROR_RESTART else self._age
        self._learn((1.0, float(work.rows), float(work.tokens)), target, expected**-2)
        self._age += 1
        self.seen += 1

    def _learn(self, x: tuple[float, float, float], target: float, weight: float) -> None:
        """Old observations fade: the first ones fast, so that neither prior nor a slow first step lingers."""
        keep = 1.0 - min(2.0 / (self._age + 2.0), 0.9) if 2 * self._memory > self._age else 1.0 - 1.0 / self._memory
        gram, moment = self._gram, self._moment
        for i in range(3):
            moment[i] = keep * moment[i] + weight * x[i] * target
            for j in range(3):
                gram[i][j] = keep * gram[i][j] + weight * x[i] * x[j]
        theta = self._theta
        for _ in range(SWEEPS):
            for i in range(3):
                if x[i]:
                    rest = sum(gram[i][j] * theta[j] for j in range(3) if j != i)
                    theta[i] = max((moment[i] - rest) / gram[i][i], 0.0 if i else BASE_MIN_S)
