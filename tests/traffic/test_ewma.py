from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.ewma import UNMEASURED_LOAD, PeakEwma


def test_a_peak_is_believed_at_once_and_forgotten_slowly() -> None:
    ewma = PeakEwma(tau_s=10.0, now=0.0)
    ewma.observe(0.010, 0.0)
    ewma.observe(0.500, 1.0)
    assert ewma.cost(1.0) == 0.500
    ewma.observe(0.010, 2.0)
    weight = exp(-0.1)
    assert ewma.cost(2.0) == pytest.approx(0.500 * weight + 0.010 * (1 - weight))


def test_silence_lowers_the_cost() -> None:
    ewma = PeakEwma(tau_s=10.0, now=0.0)
    ewma.observe(1.0, 0.0)
    assert ewma.cost(10.0) == pytest.approx(exp(-1))
    assert ewma.cost(200.0) < 1e-8


def test_load_grows_with_work_in_flight() -> None:
    ewma = PeakEwma(tau_s=10.0, now=0.0)
    ewma.observe(0.02, 0.0)
    assert ewma.load(0, 0.0) == pytest.approx(0.02)
    assert ewma.load(4, 0.0) == pytest.approx(0.10)


def test_an_unmeasured_endpoint_gets_one_probe_at_a_time() -> None:
    ewma = PeakEwma(tau_s=10.0, now=0.0)
    assert ewma.load(0, 0.0) == 0.0
    assert ewma.load(1, 0.0) > UNMEASURED_LOAD
    assert ewma.load(2, 0.0) > ewma.load(1, 0.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50)), min_size=1, max_size=30))
def test_the_cost_stays_between_nothing_and_the_worst_seen(observations: list[tuple[float, float]]) -> None:
    ewma, now, worst = PeakEwma(tau_s=5.0, now=0.0), 0.0, 0.0
    for cost, elapsed in observations:
        now += elapsed
        ewma.observe(cost, now)
        worst = max(worst, cost)
        assert 0.0 <= ewma.cost(now) <= worst * (1 + 1e-12)
        assert ewma.cost(now) >= cost * (1 - 1e-12)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    ewma = PeakEwma(tau_s=10.0, now=5.0)
    ewma.observe(1.0, 5.0)
    assert ewma.cost(4.0) == 1.0
