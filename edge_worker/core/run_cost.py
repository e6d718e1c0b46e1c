"""How long a batch will run, learnt from the batches that did (nearsay/traffic/linear_cost.py).

Decides: the expected run time of a set of rows. Must not know: engines, queues, clocks.
Model: ms = step * longest + token * total, in source tokens. `step` is what one decoder pass costs whatever its width
(the weights are read once), `token` what each row adds; a batch runs as many passes as its longest row. Single
sentences can't tell the two apart: they keep the prior's ratio.
Invariant: no factor is negative, so that one row more never looks cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.traffic.linear_cost import LinearCost

PRIOR_STEP_MS, PRIOR_TOKEN_MS = 0.4, 0.1  # a 9M-parameter int8 student on one server core
TOKENS_TYPICAL = (20.0, 60.0)  # of the longest row, of all rows
MEMORY = 100  # batches


class RunCost:
    """Expected cost of one engine's batches."""

    __slots__ = ("_fit",)

    def __init__(self, step_ms: float = PRIOR_STEP_MS, token_ms: float = PRIOR_TOKEN_MS) -> None:
        self._fit = LinearCost((step_ms, token_ms), TOKENS_TYPICAL, memory=MEMORY)

    @property
    def step_ms(self) -> float:
        return self._fit.factors[0]

    @property
    def token_ms(self) -> float:
        return self._fit.factors[1]

    def run_ms(self, longest: int, total: int) -> float:
        """Expected run time of a batch: tokens of its longest row, tokens of all its rows."""
        step_ms, token_ms = self._fit.factors
        return step_ms * longest + token_ms * total

    def observe(self, tokens: Sequence[int], run_ms: float) -> None:
        """Take in one finished batch: tokens of each row (at least one row), measured time."""
        self._fit.observe((max(tokens), sum(tokens)), run_ms)
