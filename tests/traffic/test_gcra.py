from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.gcra import Gcra

arrivals = st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 30)), max_size=60)  # seconds later, cost


def test_a_burst_then_the_rate() -> None:
    bucket = Gcra(rate=2.0, burst=4.0, full_at=0.0)
    taken = []
    for now in (100.0, 100.0, 100.0, 100.0, 100.0, 100.25, 100.5, 101.0):
        fits = bucket.wait_s(1.0, now) == 0.0
        taken.append(fits)
        if fits:
            bucket.charge(1.0, now)
    assert taken == [True, True, True, True, False, False, True, True]


def test_who_waits_as_long_as_it_was_told_is_let_in() -> None:
    bucket = Gcra(rate=0.3, burst=1.0, full_at=0.0)
    now = 5.1
    for _ in range(100):
        assert bucket.wait_s(1.0, now) == 0.0
        bucket.charge(1.0, now)
        now += bucket.wait_s(1.0, now)


def test_more_than_the_burst_needs_a_full_bucket_and_is_paid_off() -> None:
    bucket = Gcra(rate=10.0, burst=20.0, full_at=0.0)
    assert bucket.wait_s(100.0, 1.0) == 0.0
    bucket.charge(100.0, 1.0)
    assert bucket.wait_s(1.0, 1.0) == pytest.approx(8.1), "down to 19 owed"
    assert bucket.wait_s(100.0, 1.0) == pytest.approx(10.0), "down to nothing owed"


def test_what_is_left() -> None:
    bucket = Gcra(rate=10.0, burst=20.0, full_at=0.0)
    assert bucket.left(1.0) == 20.0
    bucket.charge(15.0, 1.0)
    assert bucket.left(1.0) == pytest.approx(5.0) and bucket.left(1.5) == pytest.approx(10.0)
    bucket.charge(500.0, 1.0)
    assert bucket.left(1.0) == 0.0


@given(st.floats(0.1, 50), st.floats(1, 40), arrivals)
def test_no_span_has_more_than_its_rate_allows(rate: float, burst: float, arrivals: list[tuple[float, float]]) -> None:
    bucket, now, charged = Gcra(rate=rate, burst=burst, full_at=0.0), 10.0, []
    for later_s, cost in arrivals:
        now += later_s
        if bucket.wait_s(cost, now) == 0.0:
            bucket.charge(cost, now)
            charged.append((now, cost))
    for first, (since, _) in enumerate(charged):
        for last in range(first, len(charged)):
            span = charged[first : last + 1]
            most = burst + rate * (charged[last][0] - since)
            over = max((cost for _, cost in span if cost > burst), default=0.0)
            assert sum(cost for _, cost in span) <= (most + over) * (1 + 1e-6)
