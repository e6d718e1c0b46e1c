"""A plan in the making: who is in it, and how long it is expected to take.

Decides: nothing; it adds up. Must not know: who should be in it, or why.
Invariant: `seconds` is the sum of the models' predicted shares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from origin.core.plan import Batch, Encode, Row
from origin.core.resident import Resident
from origin.core.sequence import Sequence
from origin.core.step_cost import Work


class _Share:
    """One model's part."""

    __slots__ = ("encode", "rows", "slots", "tokens")

    def __init__(self) -> None:
        self.encode: list[Encode] = []
        self.rows: list[Row] = []
        self.slots = 0
        self.tokens = 0


class Step:
    """`tokens_left`: tokens of newcomers that may still be read; kept by whoever gives out slots."""

    def __init__(self, tokens_left: int) -> None:
        self.seconds = 0.0
        self.tokens_left = tokens_left
        self._shares: dict[str, _Share] = {}

    def price(self, resident: Resident, rows: int, tokens: int = 0) -> float:
        """Seconds that some more rows and tokens of a model would add."""
        cost = resident.cost
        base_s = 0.0 if resident.name in self._shares else cost.base_s
        return base_s + cost.row_s * rows + cost.token_s * tokens

    def take_on(self, resident: Resident, running: Collection[Sequence]) -> None:
        """Add a row for each of some running sequences."""
        if running:
            share = self._grow(resident, sum([len(sequence.slots) for sequence in running]), 0)
            share.rows += [_row(sequence) for sequence in running]

    def take_in(self, resident: Resident, newcomer: Sequence) -> None:
        """Add a sequence that has just got its slots: the source to read, and a row."""
        spec = newcomer.spec
        share = self._grow(resident, len(newcomer.slots), newcomer.reads)
        share.rows.append(_row(newcomer))
        share.encode.append(
            Encode(
                spec.id,
                newcomer.slots,
                spec.source,
                spec.target_tokens_max,
                spec.want_log_prob,
                want_alignment=spec.want_alignment,
                n_best=spec.n_best,
                scope=spec.tenant,
                toward=spec.toward,
                bias=spec.bias,
                length_penalty=spec.length_penalty,
                produced=tuple(newcomer.produced),
                log_prob=newcomer.log_prob or 0.0,
            )
        )

    def batches(self, order: Iterable[Resident]) -> tuple[Batch, ...]:
        """The models' parts, in the order of the models."""
        parts = [(resident.name, self._shares[resident.name]) for resident in order if resident.name in self._shares]
        return tuple(
            Batch(name, tuple(part.encode), tuple(part.rows), Work(part.slots, part.tokens)) for name, part in parts
        )

    def _grow(self, resident: Resident, slots: int, tokens: int) -> _Share:
        self.seconds += self.price(resident, slots, tokens)
        share = self._shares.get(resident.name)
        if share is None:
            share = self._shares[resident.name] = _Share()
        share.slots += slots
        share.tokens += tokens
        return share


def _row(sequence: Sequence) -> Row:
    return Row(sequence.spec.id, sequence.slots, sequence.draft, alone=sequence.faults > 0)
