"""What a piece of work will cost, learnt from the pieces that were done: a sum of features, each with a factor.

Decides: the expected cost of a feature vector. Must not know: what the features are, units, clocks, what the
expectation is used for.
Invariants: factors are never negative, the first never below `first_min`; one observation moves an expectation by a
bounded share, however wrong it is; a feature that is absent from an observation keeps its factor.
Method: exponentially weighted least squares on relative errors with Huber's pseudo-values (1964). The normal equations
are solved from the last solution, by scaling the factors of the features seen all alike, then by a few sweeps of
projected coordinate descent: what the observations can't tell apart keeps its ratio, and nothing winds up while the
same work is done for an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

PRIOR_WEIGHT = 0.01  # of one observation
HUBER = 2.0  # typical relative errors; what lies further out counts as if it lay there
ERROR_MEMORY = 20
ERROR_RESTART = 0.5  # a typical relative error like this means that the machine or the work has changed
SEEN_RESTART = 4
SWEEPS = 2


class LinearCost:
    """prior: the factors until something was observed. scales: a typical value of each feature, all positive.

    memory: about how many observations the factors rest on.
    """

    __slots__ = ("_age", "_error", "_first_min", "_gram", "_memory", "_moment", "factors", "seen")

    def __init__(
        self, prior: Sequence[float], scales: Sequence[float], *, memory: int = 200, first_min: float = 0.0
    ) -> None:
        assert len(prior) == len(scales) and min(scales) > 0 and min(prior) >= 0 and memory > SEEN_RESTART
        self.factors = list(prior)
        self.seen = 0
        self._memory = memory
        self._first_min = first_min
        size = range(len(prior))
        weight = PRIOR_WEIGHT / self.expect(scales) ** 2
        self._gram = [[weight * scales[i] ** 2 if i == j else 0.0 for j in size] for i in size]
        self._moment = [self._gram[i][i] * prior[i] for i in size]
        self._error = 1.0  # typical relative error
        self._age = 0

    def expect(self, x: Sequence[float]) -> float:
        """Expected cost of features `x`, none negative."""
        return _dot(self.factors, x)

    def observe(self, x: Sequence[float], cost: float) -> None:
        """Learn what `x` cost. Costs that can't be are passed over, and so is work that can't cost anything."""
        expected = self.expect(x)
        if not (expected > 0.0 and 0.0 < cost < float("inf")):
            return
        error = cost / expected - 1.0
        bound = HUBER * self._error
        target = expected * (1.0 + max(-bound, min(bound, error)))
        self._error += (min(abs(error), 1.0) - self._error) / ERROR_MEMORY
        self._age = min(self._age, SEEN_RESTART) if self._error > ERROR_RESTART else self._age
        self._take_in(x, target, expected**-2)
        self._scale(x)
        self._descend(x)
        self._age += 1
        self.seen += 1

    def _take_in(self, x: Sequence[float], target: float, weight: float) -> None:
        """Old observations fade: the first ones fast, so that neither prior nor a slow first one lingers."""
        keep = 1.0 - min(2.0 / (self._age + 2.0), 0.9) if 2 * self._memory > self._age else 1.0 - 1.0 / self._memory
        for i, row in enumerate(self._gram):
            self._moment[i] = keep * self._moment[i] + weight * x[i] * target
            for j in range(len(row)):
                row[j] = keep * row[j] + weight * x[i] * x[j]

    def _scale(self, x: Sequence[float]) -> None:
        seen = [i for i, value in enumerate(x) if value]
        slope = square = 0.0
        for i in seen:
            slope += self.factors[i] * self._gradient(i)
            square += self.factors[i] * sum([self._gram[i][j] * self.factors[j] for j in seen])
        if square > 0.0:
            scale = max(1.0 + slope / square, 0.0)
            for i in seen:
                self._set(i, self.factors[i] * scale)

    def _descend(self, x: Sequence[float]) -> None:
        for _ in range(SWEEPS):
            for i, value in enumerate(x):
                if value:
                    self._set(i, self.factors[i] + self._gradient(i) / self._gram[i][i])

    def _gradient(self, i: int) -> float:
        return self._moment[i] - _dot(self._gram[i], self.factors)

    def _set(self, i: int, factor: float) -> None:
        self.factors[i] = max(factor, 0.0 if i else self._first_min)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total
