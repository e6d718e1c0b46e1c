from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nearsay.runtime import metrics as metrics_module
from nearsay.runtime.metrics import STAGE_BOUNDS_MS, Metrics, MetricsState


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.prometheus().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_stage_times_are_a_histogram_and_quantiles() -> None:
    metrics = Metrics("edge")
    for ms in range(1, 101):
        metrics.observe_stages({"edge_run": float(ms), "e2e": ms * 2.0}, tier="edge", bucket="1-16", pair="en-de")
    run, e2e = sorted(metrics.snapshot()["stages"], key=lambda row: row["stage"] == "e2e")
    assert run["stage"] == "edge_run" and run["count"] == 100 and (run["tier"], run["bucket"]) == ("edge", "1-16")
    assert run["p50_ms"] == pytest.approx(50, rel=0.03) and run["p99_ms"] == pytest.approx(99, rel=0.03)
    assert e2e["p95_ms"] == pytest.approx(190, rel=0.03)
    shown = samples(metrics)
    labels = (("bucket", "1-16"), ("stage", "edge_run"), ("tier", "edge"))
    assert shown["nearsay_stage_seconds_count", labels] == 100
    assert shown["nearsay_stage_seconds_sum", labels] == pytest.approx(5.05)
    at = {
        bound: shown["nearsay_stage_seconds_bucket", tuple(sorted((*labels, ("le", str(bound)))))]
        for bound in (0.05, 1.0)
    }
    assert at[0.05] == pytest.approx(50, abs=2) and at[1.0] == 100
    assert shown["nearsay_edge_answered_total", (("bucket", "1-16"), ("pair", "en-de"), ("tier", "edge"))] == 100


def test_counters_and_gauges() -> None:
    metrics = Metrics("proxy")
    metrics.count("shed", reason="full")
    metrics.count("shed", reason="full")
    metrics.count("plain")
    metrics.gauge("in_flight", 3)
    metrics.gauge("in_flight", 2)
    shown = samples(metrics)
    assert shown["nearsay_proxy_shed_total", (("reason", "full"),)] == 2
    assert shown["nearsay_proxy_plain_total", ()] == 1
    assert shown["nearsay_proxy_in_flight", ()] == 2
    snapshot = metrics.snapshot()
    assert snapshot["service"] == "proxy"
    assert snapshot["counters"] == {"plain": 1.0, "shed{reason=full}": 2.0}
    assert snapshot["gauges"] == {"in_flight": 2.0}


def test_what_is_no_number_is_dropped_and_counted() -> None:
    metrics = Metrics("proxy")
    metrics.observe_stages({"link": math.nan, "parse": -0.5, "render": 1.0}, tier="edge", bucket="1-16", pair="en-de")
    counts = {row["stage"]: row["count"] for row in metrics.snapshot()["stages"]}
    assert counts == {"link": 0, "parse": 1, "render": 1}
    assert samples(metrics)["nearsay_metrics_dropped_total", ()] == 1


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "SERIES_MAX", 3)
    metrics = Metrics("proxy")
    for i in range(5):
        metrics.observe_stages({f"stage{i}": 1.0}, tier="edge", bucket="1-16", pair="en-de")
        metrics.count("seen", what=str(i))
        metrics.gauge("level", i, what=str(i))
    snapshot = metrics.snapshot()
    assert len(snapshot["stages"]) == 3 and len(snapshot["gauges"]) == 3
    assert len(snapshot["counters"]) == 3
    assert samples(metrics)["nearsay_metrics_dropped_total", ()] > 0


def test_loop_lag_is_measured_against_its_target() -> None:
    metrics = Metrics("proxy")
    metrics.observe_lag(0.004)
    shown = samples(metrics)
    assert shown["nearsay_event_loop_lag_seconds_bucket", (("le", "0.005"),)] == 1
    assert shown["nearsay_event_loop_lag_seconds_bucket", (("le", "0.002"),)] == 0


def test_bounds_rise() -> None:
    assert list(STAGE_BOUNDS_MS) == sorted(STAGE_BOUNDS_MS)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 500), st.sampled_from("ab")), max_size=60))
def test_processes_add_up_to_one(observations: list[tuple[int, float, str]]) -> None:
    alone, parts, together = Metrics("proxy"), [Metrics("proxy") for _ in range(3)], Metrics("proxy")
    for part, ms, bucket in observations:
        for metrics in (alone, parts[part]):
            metrics.observe_stages({"link": ms}, tier="edge", bucket=bucket, pair="en-de")
            metrics.count("requests", code="ok", door="http")
            metrics.observe_lag(ms / 1e3)
    for part in parts:
        sent = msgspec.json.decode(msgspec.json.encode(part.export()), type=MetricsState)
        together.absorb(sent, worker=None)
    assert together.snapshot() == alone.snapshot()
    ours, one = samples(together), samples(alone)
    assert ours.keys() - {key for key in ours if "created" in key[0]} == {key for key in one if "created" not in key[0]}
    for key in one.keys() & ours.keys():
        if "created" not in key[0]:
            assert ours[key] == pytest.approx(one[key]), key


def test_gauges_of_processes_stand_side_by_side_and_end_with_them() -> None:
    part, together = Metrics("proxy"), Metrics("proxy")
    part.gauge("in_flight", 3)
    part.gauge("edge_available", 1.0, edge="ws://a")
    for worker in ("1", "2", None):
        together.absorb(part.export(), worker=worker)
    assert together.snapshot()["gauges"] == {
        "edge_available{edge=ws://a,worker=1}": 1.0,
        "edge_available{edge=ws://a,worker=2}": 1.0,
        "in_flight{worker=1}": 3.0,
        "in_flight{worker=2}": 3.0,
    }


def test_series_past_the_bound_are_dropped_in_a_sum_too(monkeypatch: pytest.MonkeyPatch) -> None:
    part, together = Metrics("proxy"), Metrics("proxy")
    for stage in ("a", "b", "c"):
        part.observe_stages({stage: 1.0}, tier="edge", bucket="1-16", pair="en-de")
    monkeypatch.setattr(metrics_module, "SERIES_MAX", 2)
    together.absorb(part.export(), worker="1")
    assert len(together.snapshot()["stages"]) == 2
    assert samples(together)["nearsay_metrics_dropped_total", ()] == 1
