"""Deadlines: exactly the late, and no more memory than the living need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from origin.core.deadlines import SLACK, Deadlines


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30), st.lists(st.integers(0, 9), max_size=5))
def test_each_late_one_is_named_once(entries: list[tuple[int, bool]], times: list[int]) -> None:
    deadlines = Deadlines()
    for number, (deadline, _) in enumerate(entries):
        deadlines.add(number, float(deadline))
    live = {number for number, (_, stays) in enumerate(entries) if stays}
    named = [number for now in sorted(times) for number in deadlines.passed(float(now), live)]
    assert len(named) == len(set(named))
    assert set(named) == {number for number in live if times and entries[number][0] <= max(times)}


def test_those_that_left_are_swept() -> None:
    deadlines = Deadlines()
    live = set()
    for number in range(10_000):
        deadlines.add(number, 1e9 + number)
        live.add(number)
        if number >= 50:
            live.remove(number - 50)
        deadlines.sweep(live)
        assert len(deadlines) <= 2 * len(live) + SLACK
    assert deadlines.passed(2e9, live) == sorted(live)
