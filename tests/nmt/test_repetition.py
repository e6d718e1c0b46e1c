from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.nmt.repetition import EXPLAINED_FACTOR, EXPLAINED_MORE, LOOPED_MIN, PERIOD_MAX, loops


@given(st.lists(st.integers(), max_size=20), st.lists(st.integers(), min_size=1, max_size=PERIOD_MAX))
def test_any_loop_is_found_within_a_bounded_number_of_ids(begin: list[int], period: list[int]) -> None:
    ids = list(begin)
    limit = max(len(begin), EXPLAINED_FACTOR * 3 + EXPLAINED_MORE) + LOOPED_MIN + PERIOD_MAX
    while not loops(ids, source_tokens=3):
        ids.append(period[(len(ids) - len(begin)) % len(period)])
        assert len(ids) <= limit + 1


@given(st.lists(st.integers(0, 2), max_size=300), st.integers(1, 256))
def test_a_target_that_its_source_explains_is_none(ids: list[int], source_tokens: int) -> None:
    if len(ids) <= EXPLAINED_FACTOR * source_tokens + EXPLAINED_MORE:
        assert not loops(ids, source_tokens)


def test_what_does_not_repeat_to_the_end_is_none() -> None:
    assert loops([7] * 100, 4)
    assert not loops([*[7] * 100, 8], 4)
    assert not loops(list(range(200)), 4)
    assert not loops([*range(90), 1, 2, 3, 1, 2, 3, 1, 2, 3], 4)
