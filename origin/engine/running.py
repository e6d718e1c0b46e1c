"""A sequence between two decoder passes: what it feeds next, and what a pass's choice means for it.

Greedy sequences have one row and may have a draft verified; beams have up to `width` rows, which move between the
slots that the sequence owns. Neither touches a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nearsay.nmt.beam import BeamState, place_rows
from nearsay.nmt.config import START, ModelConfig
from nearsay.nmt.speculate import accept_chosen
from nearsay.wire.messages import FinishReason
from origin.core.plan import Encode, Outcome

BROKEN = -2  # stands for the chosen id where the logits were not finite


class Feed(NamedTuple):
    """Ids that one slot reads in the next pass: one, or several that are known already."""

    slot: int
    ids: list[int]


class Greedy:
    """The likeliest next id, each time."""

    def __init__(self, new: Encode, config: ModelConfig) -> None:
        self.encode_s = 0.0
        self._sequence = new.sequence
        self._slot = new.slots[0]
        self._eos_id = config.eos_id
        self._fed = [START, *config.prefix_ids, *new.produced]
        self._draft: tuple[int, ...] = ()
        self._left = new.target_tokens_max - len(new.produced)
        self.log_prob = new.log_prob if new.want_log_prob else None

    def feeds(self, draft: Sequence[int]) -> list[Feed]:
        """The last id, and of the draft what leaves room for the bonus token."""
        self._draft = tuple(draft[: self._left - 1])
        return [Feed(self._slot, [*self._fed, *self._draft])]

    def settle(self, chosen: Sequence[int], log_probs: Sequence[float]) -> tuple[Outcome, int]:
        """chosen[i] is the id after the i-th that was fed. Returns the outcome, and how many fed ids don't stand."""
        draft = self._draft
        known = len(self._fed) - 1
        accepted, _ = accept_chosen(draft, chosen[known : known + len(draft) + 1])
        ids = list(chosen[known : known + accepted + 1])
        finish: FinishReason | None = None
        if BROKEN in ids:
            ids, finish = [], "failed"
        elif ids[-1] == self._eos_id:
            ids, finish = ids[:-1], "stop"
        elif len(ids) == self._left:
            finish = "length"
        self._left -= len(ids)
        self._fed = ids[-1:]
        if self.log_prob is not None:
            self.log_prob += sum(log_probs[known : known + accepted + 1])
        outcome = Outcome(
            self._sequence,
            tuple(ids),
            finish,
            encode_s=self.encode_s,
            drafted=len(draft),
            accepted=accepted,
            log_prob=self.log_prob,
        )
        self.encode_s = 0.0
        return outcome, len(draft) - accepted


class Beam:
    """The best of `width` hypotheses. Drafts are of no use to it."""

    def __init__(self, new: Encode, config: ModelConfig) -> None:
        self.encode_s = 0.0
        self._sequence = new.sequence
        self._owned = new.slots
        self._prefix_ids = config.prefix_ids
        self._rows = [Feed(new.slots[0], [START, *config.prefix_ids])]
        self._want_log_prob = new.want_log_prob
        self._state = BeamState(
            len(new.slots),
            eos_id=config.eos_id,
            target_tokens_max=new.target_tokens_max,
            forced_eos=config.forced_eos,
            prefix_tokens=len(config.prefix_ids),
        )

    @property
    def candidates(self) -> int:
        """How many candidates a row needs."""
        return self._state.candidates_needed

    def feeds(self, draft: Sequence[int]) -> list[Feed]:
        """One id for each hypothesis that lives."""
        return self._rows

    def settle(
        self, log_probs: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]]
    ) -> tuple[Outcome, list[tuple[int, int]]]:
        """Each row's best candidates. Returns the outcome, and (from, to) slots to copy before the next pass."""
        encode_s, self.encode_s = self.encode_s, 0.0
        if any(row[0] != row[0] for row in log_probs):  # NaN is the likeliest of all
            return Outcome(self._sequence, finish="failed", encode_s=encode_s), []
        count = self.candidates
        extensions = self._state.advance([row[:count] for row in log_probs], [row[:count] for row in tokens])
        if extensions:
            present = [row.slot for row in self._rows]
            moves = place_rows(present, self._owned, [extension.parent for extension in extensions])
            self._rows = [Feed(slot, [e.token]) for slot, e in zip(moves.slots, extensions, strict=True)]
            return Outcome(self._sequence, encode_s=encode_s), moves.copies
        (best,) = self._state.best()
        length = len(best.ids) + len(self._prefix_ids) + (not best.truncated)
        log_prob = best.score * length if self._want_log_prob else None
        finish: FinishReason = "length" if best.truncated else "stop"
        return Outcome(self._sequence, best.ids, finish, encode_s=encode_s, log_prob=log_prob), []
