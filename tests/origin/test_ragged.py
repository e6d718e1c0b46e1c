"""Ragged groups: everyone once, at the least cost."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from origin.engine.ragged import groups


def cost(made: list[list[int]], lengths: list[int], rows: list[int], batch_tokens: float) -> float:
    return sum(batch_tokens + max(lengths[i] for i in group) * sum(rows[i] for i in group) for group in made)


def test_like_lengths_share_a_group_and_outliers_do_not() -> None:
    assert groups([5, 200, 6, 5]) == [[1], [2, 0, 3]]
    assert groups([]) == []
    assert groups([1, 1, 1]) == [[0, 1, 2]]


def test_a_few_single_ids_ride_along_with_a_draft_but_many_do_not() -> None:
    assert groups([9, 1, 1], batch_tokens=20.0) == [[0, 1, 2]]
    assert groups([9, 1, 1, 1], batch_tokens=20.0) == [[0], [1, 2, 3]]
    assert groups([9, 1], batch_tokens=20.0, rows=[1, 4]) == [[0], [1]]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4)), min_size=1, max_size=9),
    st.sampled_from([0.0, 1.0, 7.5, 30.0]),
)
def test_everyone_once_and_no_other_cut_is_cheaper(items: list[tuple[int, int]], batch_tokens: float) -> None:
    lengths, rows = [length for length, _ in items], [count for _, count in items]
    made = groups(lengths, batch_tokens, rows)
    assert sorted(index for group in made for index in group) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    cheapest = min(
        cost([order[a:b] for a, b in zip((0, *cut), (*cut, len(order)), strict=True)], lengths, rows, batch_tokens)
        for size in range(len(order))
        for cut in combinations(range(1, len(order)), size)
    )
    assert cost(made, lengths, rows, batch_tokens) <= cheapest + 1e-9
