"""A sequence between two decoder passes: what it feeds next, and what a pass's choice means for it.

Greedy sequences have one row and may have a draft verified; beams have up to `width` rows, which move between the
slots that the sequence owns. Neither touches a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nearsay.nmt.beam import BeamState, place_rows
from nearsay.nmt.config import START, ModelConfig
from nearsay.nmt.decoding import Leaning
from nearsay.nmt.repetition import loops
from nearsay.nmt.speculate import Draft, accept_chosen
from nearsay.wire.messages import FinishReason
from origin.core.plan import Encode, Outcome

BROKEN = -2  # stands for the chosen id where the logits were not finite


class Feed(NamedTuple):
    """Ids that one slot reads in the next pass: one, or several that are known already."""

    slot: int
    ids: list[int]


class Greedy:
    """The likeliest next id, each time; of a draft, whatever stands, in as many passes as it takes."""

    def __init__(self, new: Encode, config: ModelConfig) -> None:
        self.encode_s = 0.0
        self._sequence = new.sequence
        self.slot = new.slots[0]
        self.want_alignment = new.want_alignment
        self.said = list(new.produced)  # of a sequence that was evicted: replayed, not said again
        self._eos_id = config.eos_id
        self._fed = [START, *config.prefix_ids, *new.produced]
        self._draft: Draft | None = None
        self._proposed: tuple[int, ...] = ()
        self._source_tokens = len(new.source)
        self._left = new.target_tokens_max - len(new.produced)
        self.log_prob = new.log_prob if new.want_log_prob else None
        self._bias = new.bias
        # What is preferred next, as long as all that was said is what was preferred.
        self._toward = new.toward[len(self.said) :] if new.toward[: len(self.said)] == new.produced else ()

    def feeds(self, draft: Sequence[int]) -> list[Feed]:
        """The last id, and of the draft (a new one, or the one we have) what promises to stand and leaves room for the
        bonus token."""
        if draft:
            self._draft = Draft(draft, self._eos_id)
        self._proposed = () if self._draft is None else self._draft.propose(self.said, self._left - 1)
        return [Feed(self.slot, [*self._fed, *self._proposed])]

    def leanings(self, row: int) -> list[Leaning]:
        """What is preferred, and where, after the ids that were fed last in `row` of a pass."""
        at = len(self._fed) - 1
        found: list[Leaning] = []
        for place, token in enumerate(self._toward[: len(self._proposed) + 1]):
            found.append(Leaning(row, at + place, token, self._bias))
            if place < len(self._proposed) and self._proposed[place] != token:
                break
        return found

    def settle(self, chosen: Sequence[int], log_probs: Sequence[float]) -> tuple[Outcome, int]:
        """chosen[i] is the id after the i-th that was fed. Returns the outcome, and how many fed ids don't stand."""
        draft = self._proposed
        known = len(self._fed) - 1
        accepted, _ = accept_chosen(draft, chosen[known : known + len(draft) + 1])
        ids, finish = self._say(chosen[known : known + accepted + 1])
        self._fed = ids[-1:]
        follows = self._toward[: len(ids)] == tuple(ids)
        self._toward = self._toward[len(ids) :] if follows else ()
        if self._draft is not None:
            self._draft.settle(chosen[known : known + len(draft)], accepted)
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

    def _say(self, chosen: Sequence[int]) -> tuple[list[int], FinishReason | None]:
        """Takes the chosen ids one by one, as if each had its own pass. Returns those that count, and why they end."""
        if BROKEN in chosen:
            return [], "failed"
        for count, token in enumerate(chosen):
            if token == self._eos_id:
                return list(chosen[:count]), "stop"
            self.said.append(token)
            self._left -= 1
            if not self._left or loops(self.said, self._source_tokens):  # a loop never comes to its own end
                return list(chosen[: count + 1]), "length"
        return list(chosen), None


class Beam:
    """The best of `width` hypotheses. Drafts are of no use to it."""

    def __init__(self, new: Encode, config: ModelConfig) -> None:
        self.encode_s = 0.0
        self._sequence = new.sequence
        self.slot = new.slots[0]
        self.want_alignment = new.want_alignment
        self.said: tuple[int, ...] = ()
        self._owned = new.slots
        self._prefix_ids = config.prefix_ids
        self._rows = [Feed(new.slots[0], [START, *config.prefix_ids])]
        self._want_log_prob = new.want_log_prob
        self._n_best = new.n_best
        self._length_penalty = new.length_penalty
        self._state = BeamState(
            len(new.slots),
            eos_id=config.eos_id,
            target_tokens_max=new.target_tokens_max,
            length_penalty=new.length_penalty,
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
        found = self._state.best(self._n_best)
        best = found[0]
        self.said = best.ids
        length = len(best.ids) + len(self._prefix_ids) + (not best.truncated)
        log_prob = best.score * length**self._length_penalty if self._want_log_prob else None
        finish: FinishReason = "length" if best.truncated else "stop"
        n_best = tuple(other.ids for other in found if not other.truncated) if self._n_best > 1 else ()
        return Outcome(self._sequence, best.ids, finish, encode_s=encode_s, log_prob=log_prob, n_best=n_best), []
