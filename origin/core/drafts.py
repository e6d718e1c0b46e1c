"""What a sequence's drafts are, and in which order they are tried.

Decides: how the drafts at hand become one: the caller's, those of the session's earlier answers, a past answer's.
Must not know: where they come from, whether they pay (draft_len.py), what an id means.
Invariants: every id comes from a draft given; what is empty is never tried, nor the same twice.
The caller's translator disagrees with the model where it did before. So what it has changed since its last draft is
taken over into the answer that the session gave then, as diff3 merges files (Khanna et al. 2007, "A Formal
Investigation of Diff3").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

Ids = tuple[int, ...]

PAIRS_MAX = 1024
"""Pairs of equal ids in two drafts: with more, as in loops, they are not merged, because that takes milliseconds."""


class Earlier(msgspec.Struct, frozen=True):
    """An earlier answer, and the draft that its caller had sent (empty = none)."""

    ids: Ids
    draft: Ids = ()


def in_order(caller: Ids, earlier: Sequence[Earlier], past: Ids = ()) -> list[Ids]:
    """The drafts to try, the best first, each once.

    caller: what its own translator says. earlier: answers to similar sources, the most similar first. past: the answer
    to the very same source, by another version of the model.
    """
    drafts = [past]
    if earlier and earlier[0].draft and caller:
        drafts.append(merge(earlier[0].draft, earlier[0].ids, caller))
    drafts += [caller, *[answer.ids for answer in earlier]]
    return [ids for ids in dict.fromkeys(drafts) if ids]


def merge(base: Ids, ours: Ids, theirs: Ids) -> Ids:
    """`ours` with what `theirs` changed in `base`; where both changed the same place, as `theirs` has it."""
    if base == theirs:
        return ours
    if max(_pairs(base, ours), _pairs(base, theirs)) > PAIRS_MAX:
        return theirs
    in_ours, in_theirs = _places(base, ours), _places(base, theirs)
    merged: list[int] = []
    b = o = t = 0
    for at in sorted(in_ours.keys() & in_theirs.keys()):
        o_end, t_end = in_ours[at], in_theirs[at]
        merged += ours[o:o_end] if theirs[t:t_end] == base[b:at] else theirs[t:t_end]
        merged.append(base[at])
        b, o, t = at + 1, o_end + 1, t_end + 1
    merged += ours[o:] if theirs[t:] == base[b:] else theirs[t:]
    return tuple(merged)


def _places(old: Ids, new: Ids) -> dict[int, int]:
    """Where in `new` the ids of `old` stand that it kept."""
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {block.a + k: block.b + k for block in blocks for k in range(block.size)}


def _pairs(one: Ids, other: Ids) -> int:
    counts = Counter(other)
    return sum([counts[token] for token in one])
