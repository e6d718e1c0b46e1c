"""How long a batch will run, learnt from the batches that did.

Decides: the expected run time of a set of rows. Must not know: engines, queues, clocks.
Model: ms = step * longest + token * total, in source tokens. `step` is what one decoder pass costs whatever its width
(the weights are read once), `token` what each row adds; a batch runs as many passes as its longest row.
Least squares with exponential forgetting (Haykin, "Adaptive Filter Theory", chapter 10), damped towards the prior's
ratio of the two factors at the measured scale: single sentences can't tell them apart. Invariant: no factor is
negative, so that one row more never looks cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

FORGETTING = 0.98  # weight of the batch n batches ago is 0.98 ** n
PRIOR_STEP_MS, PRIOR_TOKEN_MS = 0.4, 0.1  # a 9M-parameter int8 student on one server core
PRIOR_TOKENS = 20  # the prior weighs as much as one measured sentence of this length
DAMPING = 0.01  # share of each factor's own evidence


class RunCost:
    """Expected cost of one engine's batches."""

    __slots__ = ("_ll", "_lt", "_ly", "_tt", "_ty", "step_ms", "token_ms")

    def __init__(self) -> None:
        self.step_ms, self.token_ms = PRIOR_STEP_MS, PRIOR_TOKEN_MS
        # Sums over batches of products of longest (l), total (t) and run time (y), each divided by total: what is
        # fitted is the time per token, so that batches of all sizes and machines of all speeds weigh the same.
        self._ll = self._lt = self._tt = self._ly = self._ty = 0.0
        self._add(PRIOR_TOKENS, PRIOR_TOKENS, self.run_ms(PRIOR_TOKENS, PRIOR_TOKENS))

    def run_ms(self, longest: int, total: int) -> float:
        """Expected run time of a batch: tokens of its longest row, tokens of all its rows."""
        return self.step_ms * longest + self.token_ms * total

    def observe(self, tokens: Sequence[int], run_ms: float) -> None:
        """Take in one finished batch: tokens of each row (at least one row), measured time."""
        self._add(max(tokens), sum(tokens), max(0.0, run_ms))
        self._solve()

    def _add(self, longest: int, total: int, run_ms: float) -> None:
        l, y = longest / total, run_ms / total  # noqa: E741 - as in the sums
        self._ll = FORGETTING * self._ll + l * l
        self._lt = FORGETTING * self._lt + l
        self._tt = FORGETTING * self._tt + 1.0
        self._ly = FORGETTING * self._ly + l * y
        self._ty = FORGETTING * self._ty + y

    def _solve(self) -> None:
        """The two normal equations; a factor that would be negative is 0 and the other fitted alone."""
        step, token = self._prior()
        ll, tt, lt = self._ll * (1 + DAMPING), self._tt * (1 + DAMPING), self._lt
        ly, ty = self._ly + self._ll * DAMPING * step, self._ty + self._tt * DAMPING * token
        determinant = ll * tt - lt * lt  # > 0: Cauchy-Schwarz, and the damping
        step, token = (ly * tt - ty * lt) / determinant, (ty * ll - ly * lt) / determinant
        if step < 0.0:
            step, token = 0.0, ty / tt
        elif token < 0.0:
            step, token = ly / ll, 0.0
        self.step_ms, self.token_ms = step, token

    def _prior(self) -> tuple[float, float]:
        """The prior's factors, both scaled by the one number that fits the measurements best."""
        step, token = PRIOR_STEP_MS, PRIOR_TOKEN_MS
        linear = step * self._ly + token * self._ty
        square = step * step * self._ll + 2 * step * token * self._lt + token * token * self._tt
        return step * linear / square, token * linear / square
