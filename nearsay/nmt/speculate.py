"""Which part of a draft stands: greedy speculative decoding.

Decides: how many drafted ids the model would have chosen itself. Must not know: who drafted.
Invariant: the accepted ids and the bonus token are exactly what plain greedy decoding gives.
Paper: Leviathan et al. (2023), here for greedy decoding, where acceptance is equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Accepted(NamedTuple):
    """length: how many drafted ids stand. bonus: the id that the model puts after them."""

    length: int
    bonus: int


def accept(draft_ids: Sequence[int], logits: Tensor) -> Accepted:
    """draft_ids: k ids without `</s>`. logits [>= k + 1, V]: row i is what `verify` gave before draft id i."""
    return accept_chosen(draft_ids, logits[: len(draft_ids) + 1].argmax(-1).tolist())


def accept_chosen(draft_ids: Sequence[int], chosen_ids: Sequence[int]) -> Accepted:
    """As `accept`, given the k + 1 ids that the model chose, so that a batch needs one argmax and one copy."""
    length = 0
    while length < len(draft_ids) and draft_ids[length] == chosen_ids[length]:
        length += 1
    return Accepted(length, chosen_ids[length])
