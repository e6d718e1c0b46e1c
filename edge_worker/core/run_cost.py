"""How long a batch will run, learnt from the batches that did.

Decides: the expected run time of a set of rows. Must not know: engines, queues, clocks.
Model: ms = step * longest + token * total, in source tokens. `step` is what one decoder pass costs whatever its width
(the weights are read once), `token` what each row adds; a batch runs as many passes as its longest row.
Ridge regression towards a prior, with exponential forgetting (Haykin, "Adaptive Filter Theory", chapter 10): single
sentences alone can't tell the factors apart, and then the prior does. Invariants: no factor is negative, so that one
row more never looks cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

FORGETTING = 0.98  # weight of the batch n batches ago is 0.98 ** n
PRIOR_STEP_MS, PRIOR_TOKEN_MS = 0.4, 0.1  # a 9M-parameter int8 student on one server core
RIDGE = 0.5  # the prior is worth about one batch


class RunCost:
    """Expected cost of one engine's batches."""

    __slots__ = ("_ll", "_lt", "_ly", "_tt", "_ty", "step_ms", "token_ms")

    def __init__(self) -> None:
        self.step_ms, self.token_ms = PRIOR_STEP_MS, PRIOR_TOKEN_MS
        # Sums over batches of products of longest (l), total (t) and 1, each divided by the run time: fitting the
        # ratio to 1 makes an error of 10 % weigh the same in a batch of 5 ms and in one of 100 ms.
        self._ll = self._lt = self._tt = self._ly = self._ty = 0.0

    def run_ms(self, longest: int, total: int) -> float:
        """Expected run time of a batch: tokens of its longest row, tokens of all its rows."""
        return self.step_ms * longest + self.token_ms * total

    def observe(self, tokens: Sequence[int], run_ms: float) -> None:
        """Take in one finished batch: tokens of each row (at least one row), measured time."""
        if run_ms <= 0.0:
            return
        longest, total = max(tokens) / run_ms, sum(tokens) / run_ms
        self._ll = FORGETTING * self._ll + longest * longest
        self._lt = FORGETTING * self._lt + longest * total
        self._tt = FORGETTING * self._tt + total * total
        self._ly = FORGETTING * self._ly + longest
        self._ty = FORGETTING * self._ty + total
        self._solve()

    def _solve(self) -> None:
        """The two normal equations; a factor that would be negative is 0 and the other fitted alone."""
        ll, tt, lt = self._ll + RIDGE, self._tt + RIDGE, self._lt
        ly, ty = self._ly + RIDGE * PRIOR_STEP_MS, self._ty + RIDGE * PRIOR_TOKEN_MS
        determinant = ll * tt - lt * lt  # > 0: Cauchy-Schwarz, and the ridge
        step, token = (ly * tt - ty * lt) / determinant, (ty * ll - ly * lt) / determinant
        if step < 0.0:
            step, token = 0.0, ty / tt
        elif token < 0.0:
            step, token = ly / ll, 0.0
        self.step_ms, self.token_ms = step, token
