"""An engine without torch: the target is the source reversed. For tests, simulations and benchmarks of what surrounds
an engine.

It keeps the same contract as the real one: sources are read once, each step yields one id a row, drafts are verified to
the longest agreeing prefix plus a bonus id, the closing eos isn't handed out, and a row that reaches its limit without
an eos finishes with "length". Time is what `spend` makes of it: nothing, `time.sleep`, or a simulation's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nearsay.text.entry import ModelEntry
from nearsay.wire.messages import FinishReason
from origin.core.model import ServedModel
from origin.core.plan import Batch, Encode, Outcome, Plan, Result, Row
from origin.engine.base import Prepared

MEMORY_BYTES = 1 << 40  # never the limit


class EchoPrepared(NamedTuple):
    """See `Prepared`."""

    model: ServedModel


class _Echo:
    """One sequence: what it will say, and how far it got."""

    __slots__ = ("limit", "said", "target")

    def __init__(self, new: Encode, eos_id: int) -> None:
        self.target = (*reversed(new.source[:-1]), eos_id)
        self.said = len(new.produced)
        self.limit = new.target_tokens_max


class EchoEngine:
    """`ids_per_step`: ids that a row yields in one step. `encode_token_s`, `step_s`, `row_s`: seconds to spend on a
    source token, a model's step, and each row of it."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        *,
        ids_per_step: int = 1,
        encode_token_s: float = 0.0,
        step_s: float = 0.0,
        row_s: float = 0.0,
        spend: Callable[[float], None] | None = None,
        make: Callable[[ModelEntry], ServedModel] | None = None,
    ) -> None:
        """`make`: how a model of the registry is served here; without it only `models` are."""
        assert ids_per_step > 0
        self._models = {model.name: model for model in models}
        self._ids_per_step = ids_per_step
        self._encode_token_s = encode_token_s
        self._step_s = step_s
        self._row_s = row_s
        self._spend = spend
        self._make = make
        self._echoes: dict[int, _Echo] = {}

    def load(self) -> tuple[ServedModel, ...]:
        return tuple(self._models.values())

    @property
    def memory_bytes_max(self) -> int:
        return MEMORY_BYTES

    def footprint(self, entry: ModelEntry) -> int:
        return 0

    def prepare(self, entry: ModelEntry) -> EchoPrepared:
        assert self._make is not None, "made for given models"
        return EchoPrepared(self._make(entry))

    def adopt(self, prepared: Prepared) -> None:
        self._models[prepared.model.name] = prepared.model

    def release(self, model: str) -> None:
        del self._models[model]

    def keep_warm(self) -> None:
        """There is nothing that could grow cold."""

    def info(self) -> str:
        return "echo"

    def close(self) -> None:
        self._echoes.clear()

    def run(self, plan: Plan) -> Result:
        for sequence in plan.dropped:
            self._echoes.pop(sequence, None)
        return Result(tuple(outcome for batch in plan.batches for outcome in self._run(batch)))

    def _run(self, batch: Batch) -> list[Outcome]:
        eos_id = self._models[batch.model].eos_id
        for new in batch.encode:
            self._echoes[new.sequence] = _Echo(new, eos_id)
        encode_s = self._encode_token_s * sum(len(new.source) + len(new.produced) for new in batch.encode)
        if self._spend is not None:
            self._spend(encode_s + self._step_s + self._row_s * sum(len(row.slots) for row in batch.rows))
        fresh = {new.sequence for new in batch.encode}
        return [self._say(row, eos_id, encode_s if row.sequence in fresh else 0.0) for row in batch.rows]

    def _say(self, row: Row, eos_id: int, encode_s: float) -> Outcome:
        echo = self._echoes[row.sequence]
        accepted = 0
        for proposed, true in zip(row.draft, echo.target[echo.said :], strict=False):
            if proposed != true or true == eos_id:
                break
            accepted += 1
        new = echo.target[echo.said : echo.said + (accepted + 1 if row.draft else self._ids_per_step)]
        ids = tuple(i for i in new if i != eos_id)[: echo.limit - echo.said]
        echo.said += len(ids)
        ended = eos_id in new
        finish: FinishReason | None = "stop" if ended else "length" if echo.said >= echo.limit else None
        if finish is not None:
            del self._echoes[row.sequence]
        return Outcome(row.sequence, ids, finish, 1, encode_s, len(row.draft), accepted)
