"""Ragged groups: everyone once, little padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from origin.engine.ragged import groups


def test_like_lengths_share_a_group_and_outliers_do_not() -> None:
    assert groups([5, 200, 6, 5]) == [[1], [2, 0, 3]]
    assert groups([]) == []


@given(st.lists(st.integers(1, 256), max_size=64), st.floats(0, 0.9))
def test_everyone_once_and_padding_bounded(lengths: list[int], waste_max: float) -> None:
    made = groups(lengths, waste_max)
    assert sorted(index for group in made for index in group) == list(range(len(lengths)))
    for group in made:
        padded = max(lengths[i] for i in group) * len(group)
        assert padded - sum(lengths[i] for i in group) <= waste_max * padded
