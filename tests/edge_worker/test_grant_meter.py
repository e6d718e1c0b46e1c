"""Shares of tenants at one edge, at their bounds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.grant_meter import GrantMeter
from nearsay.wire.errors import RateLimited
from nearsay.wire.grant import Grant

GRANT = Grant("acme", ("eu",), 0.0, "interactive", 2.0, 100.0, 1.0, 3)


def refused(meter: GrantMeter, grant: Grant, chars: int, now: float) -> float:
    with pytest.raises(RateLimited) as error:
        meter.begin(grant, chars, now)
    assert error.value.code == "rate_limited" and error.value.retry_after_ms is not None
    return error.value.retry_after_ms


def test_requests_and_characters_have_their_rates() -> None:
    meter = GrantMeter()
    for _ in range(2):
        meter.begin(GRANT, 10, 0.0)
        meter.end(GRANT)
    assert refused(meter, GRANT, 10, 0.0) == pytest.approx(500.0)
    meter.begin(GRANT, 80, 0.5)
    meter.end(GRANT)
    assert refused(meter, GRANT, 80, 1.0) > 0
    meter.begin(GRANT, 80, 2.0)


def test_requests_at_once_are_bounded_and_a_refused_one_costs_nothing() -> None:
    grant = msgspec.structs.replace(GRANT, requests_per_s=100.0)
    meter = GrantMeter()
    for _ in range(3):
        meter.begin(grant, 1, 0.0)
    for _ in range(200):
        refused(meter, grant, 1, 0.0)
    meter.end(grant)
    meter.begin(grant, 97, 0.0)


def test_more_grants_of_a_tenant_are_not_more_share() -> None:
    meter = GrantMeter()
    grants = [msgspec.structs.replace(GRANT, expires=float(n)) for n in range(4)]
    meter.begin(grants[0], 1, 0.0)
    meter.begin(grants[1], 1, 0.0)
    refused(meter, grants[2], 1, 0.0)
    meter.begin(msgspec.structs.replace(GRANT, tenant="other"), 1, 0.0)


def test_new_rates_keep_what_is_owed() -> None:
    meter = GrantMeter()
    meter.begin(GRANT, 100, 0.0)
    faster = msgspec.structs.replace(GRANT, chars_per_s=1000.0)
    assert refused(meter, faster, 1000, 0.0) > 0
    meter.begin(faster, 1000, 1.0)


def test_tenants_remembered_are_bounded() -> None:
    meter = GrantMeter(tenants_max=2)
    a, b, c = (msgspec.structs.replace(GRANT, tenant=name) for name in "abc")
    meter.begin(a, 50, 0.0)
    meter.begin(b, 1, 0.0)
    meter.end(b)
    refused(meter, c, 1, 0.0)
    meter.begin(c, 1, 1.0)  # b has paid off, a is still in flight
    meter.end(a)
    meter.begin(b, 1, 1.2)  # a has paid off and is over
    meter.end(b)
    refused(meter, a, 1, 1.3)  # c is in flight, b has something to pay off
    meter.begin(a, 1, 1.8)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 300)), max_size=60))
def test_no_history_gets_more_than_the_rates(asked: list[tuple[float, int]]) -> None:
    meter = GrantMeter()
    now, taken = 0.0, []
    for gap, chars in asked:
        now += gap
        try:
            meter.begin(GRANT, chars, now)
        except RateLimited:
            continue
        taken.append((now, chars))
        meter.end(GRANT)
    for i, (start, _) in enumerate(taken):
        for j in range(i, len(taken)):
            span = taken[j][0] - start
            window = [chars for _, chars in taken[i : j + 1]]
            assert len(window) <= 2.0 * (1.0 + span) + 1e-6
            # One request larger than the burst may come into a full bucket, and is then paid off.
            assert sum(window) - max(window) <= 100.0 * (1.0 + span) + 1e-6
