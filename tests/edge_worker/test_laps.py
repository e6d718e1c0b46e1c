from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.laps import Laps

steps = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=20)


@given(steps)
def test_laps_sum_to_the_time_that_passed(laps_taken: list[tuple[str, float]]) -> None:
    laps, now = Laps(5.0), 5.0
    for stage, passed in laps_taken:
        now += passed
        laps.lap(stage, now)
    assert sum(laps.ms.values()) == pytest.approx((now - 5.0) * 1000, abs=1e-6)


def test_far_time_is_charged_to_those_who_account_for_it() -> None:
    laps = Laps(0.0)
    laps.far("link", 8.0, {"queue": 1.0, "decode": 6.0}, 0.010)
    assert laps.ms == pytest.approx({"queue": 1.0, "decode": 6.0, "link": 2.0})  # 1 ms stays unaccounted, on purpose
    laps.far("link", 99.0, {}, 0.020)  # a peer that claims more than has passed
    assert laps.ms["link"] == pytest.approx(2.0) and laps.last == 0.020


def test_a_fork_goes_on_by_itself_until_it_is_taken() -> None:
    laps = Laps(0.0)
    laps.lap("a", 0.001)
    fork = laps.fork()
    fork.lap("b", 0.003)
    assert laps.ms == pytest.approx({"a": 1.0})
    laps.take(fork)
    laps.lap("c", 0.004)
    assert laps.ms == pytest.approx({"a": 1.0, "b": 2.0, "c": 1.0})
