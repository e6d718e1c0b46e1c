from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.hedging import BUDGET_S, HedgeRules, Hedging
from nearsay.traffic.latencies import Latencies
from nearsay.traffic.mode import Mode


def hedging(mode: Mode = "on", **rules: float) -> Hedging:
    latencies = Latencies()
    for number in range(1000):
        latencies.observe("short", 0.01 if number % 100 else 0.2, 0.0)
        latencies.observe("swift", 0.0001, 0.0)
    return Hedging(HedgeRules(mode=mode, **rules), latencies, 0.0)  # type: ignore[arg-type]


def test_late_is_past_a_percentile_of_such_requests() -> None:
    assert hedging(quantile=0.97).delay_s("short", 0.0) == pytest.approx(0.01, rel=0.02)
    assert hedging(quantile=0.995).delay_s("short", 0.0) == pytest.approx(0.2, rel=0.02)
    assert hedging().delay_s("swift", 0.0) == 0.002  # never within the noise
    assert hedging().delay_s("unknown", 0.0) is None
    assert hedging("off").delay_s("short", 0.0) is None
    assert hedging("dark").delay_s("short", 0.0) is not None  # counted


def test_when_all_become_late_the_budget_holds() -> None:
    hedges = hedging(extra_load_max=0.03, floor_per_s=0.0)
    granted = 0
    for number in range(10_000):
        hedges.delay_s("short", number / 1000)
        granted += hedges.pay(number / 1000)
    assert 290 <= granted <= 300


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=300))
def test_hedges_are_never_more_than_paid_for(steps: list[tuple[bool, float]]) -> None:
    hedges = hedging(extra_load_max=0.1, floor_per_s=0.2)
    now, requests, granted = 0.0, 0, 0
    for asks, elapsed in steps:
        now += elapsed
        if asks:
            granted += hedges.pay(now)
        else:
            hedges.delay_s("short", now)
            requests += 1
    assert granted <= 0.1 * requests + 0.2 * (now + 1.1 * BUDGET_S) + 1
