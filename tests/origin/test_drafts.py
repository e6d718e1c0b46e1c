"""Drafts: their order, and the merge of what two translators said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.core.drafts import PAIRS_MAX, Earlier, in_order, merge

IDS = st.lists(st.integers(1, 6), max_size=12).map(tuple)


def test_the_order() -> None:
    earlier = [Earlier((1, 2, 3), draft=(1, 9, 3)), Earlier((1, 2))]
    assert in_order((1, 9, 3, 4), earlier) == [(1, 2, 3, 4), (1, 9, 3, 4), (1, 2, 3), (1, 2)]
    assert in_order((1, 9, 3, 4), earlier, past=(5,))[0] == (5,)
    assert in_order((), earlier) == [(1, 2, 3), (1, 2)]
    assert in_order((7,), [Earlier((1, 2))]) == [(7,), (1, 2)]  # nothing to merge by
    assert in_order((), []) == in_order((), [Earlier(())]) == []
    assert in_order((1,), [Earlier((1,))], past=(1,)) == [(1,)]


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ((1, 2, 3), (1, 8, 3), (1, 2, 3, 4), (1, 8, 3, 4)),  # ours put 8 for 2, theirs went on
        ((1, 2, 3), (1, 8, 3), (1, 9, 3), (1, 9, 3)),  # both changed it
        ((1, 2, 3), (1, 3), (7, 1, 2, 3), (7, 1, 3)),  # ours dropped 2, theirs began with 7
        ((1, 2), (1, 2, 3), (2,), (2, 3)),
        ((), (1,), (2,), (2,)),
    ],
)
def test_merges(base: tuple[int, ...], ours: tuple[int, ...], theirs: tuple[int, ...], merged: tuple[int, ...]) -> None:
    assert merge(base, ours, theirs) == merged


@given(IDS, IDS, IDS)
def test_what_one_side_left_alone_is_the_others(
    base: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    assert merge(base, one, base) == one and merge(base, base, other) == other
    assert set(merge(base, one, other)) <= {*one, *other}
    assert len(merge(base, one, other)) <= len(one) + len(other)


def test_loops_are_not_merged() -> None:
    many = (5,) * (int(PAIRS_MAX**0.5) + 1)
    assert merge(many, (*many, 1), (2, *many)) == (2, *many)
    few = (5,) * int(PAIRS_MAX**0.5 - 1)
    assert merge(few, (*few, 1), (2, *few)) == (2, *few, 1)


@given(IDS, st.lists(st.tuples(IDS, IDS), max_size=3), IDS)
def test_every_draft_is_there_once(
    caller: tuple[int, ...], others: list[tuple[tuple[int, ...], ...]], past: tuple[int, ...]
) -> None:
    drafts = in_order(caller, [Earlier(*each) for each in others], past)
    assert len(set(drafts)) == len(drafts) and () not in drafts
    assert {caller, past, *[ids for ids, _ in others]} - {()} <= set(drafts)
