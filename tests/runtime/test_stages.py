from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.runtime.stages import StageClock


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_laps_of_a_stage_add_up() -> None:
    clock = Hand()
    stages = StageClock(clock)
    for stage, seconds in (("segment", 0.001), ("edge_run", 0.010), ("segment", 0.002)):
        clock.now += seconds
        assert stages.lap(stage) == pytest.approx(seconds * 1e3)
    assert stages.stages_ms == pytest.approx({"segment": 3.0, "edge_run": 10.0})


def test_what_somebody_else_accounts_for_is_taken_from_the_rest() -> None:
    clock = Hand()
    stages = StageClock(clock)
    clock.now += 0.020
    stages.charge({"encode": 4.0, "decode": 12.0}, "origin_link")
    assert stages.stages_ms == pytest.approx({"encode": 4.0, "decode": 12.0, "origin_link": 4.0})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=20), st.floats(0, 5000))
def test_the_stages_always_sum_to_the_whole(laps: list[tuple[str, float]], theirs: float) -> None:
    clock = Hand()
    stages = StageClock(clock)
    for stage, seconds in laps:
        clock.now += seconds
        stages.lap(stage)
    clock.now += 1.0
    stages.charge({"d": theirs}, "rest")
    assert sum(stages.stages_ms.values()) == pytest.approx(stages.total_ms(), abs=1e-6)
    assert stages.total_ms() == pytest.approx((clock.now - 50.0) * 1e3, abs=1e-6)
