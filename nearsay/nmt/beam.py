"""One sequence's beam search, fed step by step.

Decides: which hypotheses live on, which have ended, when nothing better can come.
Must not know: tensors, slots' contents, other sequences: whoever runs the model hands in each row's best candidates.
Invariants: at most `width` rows live, best first; a row that ended is never continued; scores are sums of
log-probabilities, ended ones divided by length ** length_penalty (`</s>` and any prefix counted).
The rules are those of Hugging Face's `generate(num_beams=width, early_stopping=False)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH_MAX = 8
IMPOSSIBLE = float("-inf")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """ids without `</s>`. truncated: the length limit ended it, not the model."""

    ids: tuple[int, ...]
    score: float
    truncated: bool = False


class Extension(NamedTuple):
    """One row of the next step: it continues row `parent` of this step with `token`."""

    parent: int
    token: int


class BeamState:
    """Start with one row. Each step: run the model on all rows, `advance`, go on with the extensions returned."""

    def __init__(
        self,
        width: int,
        *,
        eos_id: int,
        target_tokens_max: int,
        length_penalty: float = 1.0,
        forced_eos: bool = False,
        prefix_tokens: int = 0,
    ) -> None:
        """target_tokens_max: ids a hypothesis may have, `</s>` included. prefix_tokens: how many ids were forced
        before the first, which count for the length."""
        assert 1 <= width <= WIDTH_MAX and target_tokens_max >= 1
        self.width = width
        self.done = False
        self._eos_id = eos_id
        self._tokens_max = target_tokens_max
        self._penalty = length_penalty
        self._forced_eos = forced_eos
        self._prefix_tokens = prefix_tokens
        self._live: list[Hypothesis] = [Hypothesis((), 0.0)]
        self._ended: list[Hypothesis] = []

    @property
    def candidates_needed(self) -> int:
        """How many candidates of each row `advance` wants: even if `width` of them end, `width` go on."""
        return 2 * self.width

    def advance(self, log_probs: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]]) -> list[Extension]:
        """The rows of the next step, best first; none when the search is done.

        log_probs[r], tokens[r]: the `candidates_needed` likeliest next ids of row r.
        """
        assert not self.done and len(log_probs) == len(self._live)
        length = len(self._live[0].ids) + 1
        last = length == self._tokens_max
        if last and self._forced_eos:
            log_probs, tokens = [[0.0]] * len(self._live), [[self._eos_id]] * len(self._live)
        going: list[tuple[float, Extension]] = []
        for rank, (score, extension) in enumerate(self._ranked(log_probs, tokens)):
            if extension.token == self._eos_id or last:
                if rank < self.width:
                    self._end(score, extension, length, truncated=last)
            elif len(going) < self.width:
                going.append((score, extension))
        self._live = [Hypothesis((*self._live[e.parent].ids, e.token), score) for score, e in going]
        self.done = not self._live or self._settled(length)
        return [] if self.done else [extension for _, extension in going]

    def best(self, count: int = 1) -> list[Hypothesis]:
        """Up to `count` ended hypotheses, best first, with their length-normalised scores."""
        return self._ended[:count]

    def _ranked(
        self, log_probs: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]]
    ) -> list[tuple[float, Extension]]:
        pool = [
            (self._live[row].score + log_prob, Extension(row, token))
            for row, candidates in enumerate(zip(log_probs, tokens, strict=True))
            for log_prob, token in zip(*candidates, strict=True)
            if log_prob > IMPOSSIBLE
        ]
        pool.sort(key=lambda entry: -entry[0])  # stable: earlier rows and likelier ids first among equals
        return pool[: self.candidates_needed]

    def _end(self, score: float, extension: Extension, length: int, *, truncated: bool) -> None:
        ids = self._live[extension.parent].ids
        if extension.token != self._eos_id:
            ids = (*ids, extension.token)
        natural = extension.token == self._eos_id and not (truncated and self._forced_eos)
        self._ended.append(Hypothesis(ids, self._normalised(score, length), truncated and not natural))
        self._ended.sort(key=lambda hypothesis: -hypothesis.score)
        del self._ended[self.width :]

    def _normalised(self, score: float, length: int) -> float:
        divisor: float = float(length + self._prefix_tokens) ** self._penalty
        return score / divisor

    def _settled(self, length: int) -> bool:
        """Enough have ended, and the best that lives would not beat the worst of them if it ended now."""
        return len(self._ended) == self.width and self._normalised(self._live[0].score, length) <= self._ended[-1].score


class Moves(NamedTuple):
    """slots: where each row of the next step lies. copies: (from, to) pairs to be copied at once before it runs."""

    slots: list[int]
    copies: list[tuple[int, int]]


def place_rows(slots: Sequence[int], owned: Sequence[int], parents: Sequence[int]) -> Moves:
    """Slots for the next rows: a parent's first child stays where its parent is, further ones take free slots.

    slots: the slot of each present row. owned: all slots of the sequence, at least as many as there are next rows.
    """
    kept = {slots[parent] for parent in parents}
    free = [slot for slot in owned if slot not in kept]
    placed: list[int] = []
    copies: list[tuple[int, int]] = []
    for parent in parents:
        slot = slots[parent]
        if slot in placed:
            copies.append((slot, free.pop()))
            slot = copies[-1][1]
        placed.append(slot)
    return Moves(placed, copies)
