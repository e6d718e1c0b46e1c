from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.lab.report import PERCENTILES, Report, Sample, percentile, spread, summarise


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from(PERCENTILES))
def test_percentile_is_a_value_that_enough_do_not_exceed(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= percent / 100 * len(ordered)
    assert sum(value < found for value in ordered) < max(1, percent / 100 * len(ordered))


def test_percentile_of_known_values() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert [percentile(hundred, p) for p in PERCENTILES] == [50, 90, 95, 99, 100]
    assert math.isnan(percentile([], 50))


def test_spread() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.count, found.mean, found.max, found.percentiles["p50"]) == (3, 2.0, 3.0, 2.0)
    assert spread([]).count == 0


def test_a_stall_charges_every_request_due_in_it() -> None:
    # Due every 100 ms; the service stands still for a second, and the generator (one in flight) sends the rest late.
    stalled = [Sample(due_s=n / 10, sent_s=max(1.0, n / 10), ended_s=max(1.0, n / 10) + 0.001) for n in range(10)]
    report = summarise(stalled, deadline_ms=500)
    assert report.service_ms.max == pytest.approx(1, rel=0.01), "what a closed loop would have reported"
    assert report.latency_ms.percentiles["p50"] == pytest.approx(501, rel=0.01)
    assert report.late_ms.max == pytest.approx(1_000)
    assert report.goodput_per_s == pytest.approx(4 / 1.001)


def test_failures_are_counted_and_teach_no_latency() -> None:
    samples = [
        Sample(0.0, 0.0, 0.1, tier="edge", stages_ms={"parse": 1.0, "decode": 4.0}),
        Sample(0.5, 0.5, 0.6, tier="edge", stages_ms={"parse": 3.0}),
        Sample(1.0, 1.0, 9.0, code="overloaded"),
        Sample(2.0, 2.0, 10.0, code="overloaded"),
    ]
    report = summarise(samples, deadline_ms=1_000)
    assert (report.requests, report.ok, report.errors, report.tiers) == (4, 2, {"overloaded": 2}, {"edge": 2})
    assert report.latency_ms.max == pytest.approx(100)
    assert (report.stages_ms["parse"].mean, report.stages_ms["decode"].count) == (2.0, 1)
    assert (report.offered_per_s, report.ok_per_s) == (2.0, 0.2)


def test_nothing_sent() -> None:
    report = summarise([], deadline_ms=1.0)
    assert (report.requests, report.ok_per_s, report.latency_ms.count) == (0, 0.0, 0)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_shifted() -> None:
    assert Sample(1.0, 2.0, 3.0, "ok", "edge").shifted(-1.0) == Sample(0.0, 1.0, 2.0, "ok", "edge")
