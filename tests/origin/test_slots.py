"""SlotPool: lowest first, all or nothing, each slot once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.core.slots import SlotPool


def test_the_lowest_free_slots_are_given() -> None:
    pool = SlotPool(5)
    first, second = pool.take(2), pool.take(2)
    assert (first, second) == ((0, 1), (2, 3))
    pool.give((1,))
    assert pool.take(2) == (1, 4)


def test_too_many_takes_nothing() -> None:
    pool = SlotPool(3)
    assert pool.take(4) is None
    assert pool.free == 3
    assert pool.take(3) == (0, 1, 2)
    assert pool.take(1) is None


def test_giving_back_twice_is_our_mistake() -> None:
    pool = SlotPool(2)
    pool.take(1)
    pool.give((0,))
    with pytest.raises(AssertionError):
        pool.give((0,))


@given(st.lists(st.integers(1, 4), max_size=40), st.randoms(use_true_random=False))
def test_free_and_taken_are_always_all(takes: list[int], chance: object) -> None:
    pool = SlotPool(8)
    held: list[tuple[int, ...]] = []
    for count in takes:
        slots = pool.take(count)
        if slots is None:
            assert pool.free < count
            pool.give(held.pop(chance.randrange(len(held))))  # type: ignore[attr-defined]
        else:
            held.append(slots)
        flat = [slot for slots in held for slot in slots]
        assert len(flat) == len(set(flat)) and pool.taken == set(flat)
        assert pool.free + len(flat) == 8
