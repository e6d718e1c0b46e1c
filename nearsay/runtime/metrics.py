"""What a process measures of itself: counters, gauges and stage times, for Prometheus and as JSON.

Several processes of one service add up: counts and sketches merge exactly, gauges stand side by side (`worker`).

Stage times go into one sketch per (stage, tier, bucket); the Prometheus histogram and the quantiles of /stats are two
views of it, so that a request pays for one dictionary look-up a stage. A histogram's count at a bound is exact to the
sketch's 2 % of the bound. No label ever carries text, keys or addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from nearsay.traffic.quantiles import QuantileSketch

SERIES_MAX = 4096  # of each of stages, counters, gauges; what comes later is counted as dropped
STAGE_BOUNDS_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
LAG_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 500)


class MetricsState(msgspec.Struct, frozen=True, array_like=True):
    """What was measured, as one process tells another."""

    stages: list[tuple[str, str, str, tuple[int, float, dict[int, int]]]]
    counters: list[tuple[str, dict[str, str], float]]
    gauges: list[tuple[str, dict[str, str], float]]
    lag_ms: tuple[int, float, dict[int, int]]
    dropped: float


class Metrics:
    """All metrics of one process, in a registry of its own. Names: nearsay_<service>_<name>."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._registry = CollectorRegistry()
        self._stages: dict[tuple[str, str, str], QuantileSketch] = {}
        self._families: dict[str, Counter | Gauge] = {}
        self._counters: dict[tuple[str, tuple[tuple[str, str], ...]], Counter] = {}
        self._gauges: dict[tuple[str, tuple[tuple[str, str], ...]], Gauge] = {}
        self._dropped = Counter("nearsay_metrics_dropped", "Observations not kept", registry=self._registry)
        self._lag = {(): QuantileSketch()}
        self._registry.register(
            _Sketches("nearsay_event_loop_lag_seconds", "Lateness of a timer", (), self._lag, LAG_BOUNDS_MS)
        )
        labels = ("stage", "tier", "bucket")
        self._registry.register(
            _Sketches("nearsay_stage_seconds", "Time of a request by stage", labels, self._stages, STAGE_BOUNDS_MS)
        )

    def observe_stages(self, stages_ms: Mapping[str, float], *, tier: str, bucket: str, pair: str) -> None:
        """One request's time by stage, in ms; `e2e` is the whole. Values that are no finite number are dropped."""
        for stage, ms in stages_ms.items():
            sketch = self._stages.get((stage, tier, bucket))
            if sketch is None:
                if len(self._stages) >= SERIES_MAX:
                    self._dropped.inc()
                    continue
                sketch = self._stages[stage, tier, bucket] = QuantileSketch()
            if math.isfinite(ms):
                sketch.add(ms)
            else:
                self._dropped.inc()
        self.count("answered", tier=tier, bucket=bucket, pair=pair)

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter. A name's labels are those of its first use."""
        self._add(name, labels, 1.0)

    def _add(self, name: str, labels: Mapping[str, str], amount: float) -> None:
        child = self._counters.get((name, tuple(labels.items())))
        if child is None:
            if len(self._counters) >= SERIES_MAX:
                return self._dropped.inc()
            child = self._family(Counter, name, labels)
            self._counters[name, tuple(labels.items())] = child
        child.inc(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        child = self._gauges.get((name, tuple(labels.items())))
        if child is None:
            if len(self._gauges) >= SERIES_MAX:
                return self._dropped.inc()
            child = self._family(Gauge, name, labels)
            self._gauges[name, tuple(labels.items())] = child
        child.set(value)

    def observe_lag(self, lag_s: float) -> None:
        """How late a timer of the event loop was."""
        self._lag[()].add(lag_s * 1e3)

    def prometheus(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def snapshot(self) -> dict[str, Any]:
        """Everything as JSON can carry it: quantiles per stage, tier and length bucket since the process started."""
        stages = [
            {
                "stage": stage,
                "tier": tier,
                "bucket": bucket,
                "count": sketch.count,
                **{f"p{p}_ms": round(sketch.quantile(p / 100), 4) for p in (50, 95, 99)},
            }
            for (stage, tier, bucket), sketch in sorted(self._stages.items())
        ]
        return {"service": self.service, "stages": stages} | {
            "counters": {_shown(*key): child._value.get() for key, child in sorted(self._counters.items())},
            "gauges": {_shown(*key): child._value.get() for key, child in sorted(self._gauges.items())},
        }

    def export(self) -> MetricsState:
        """All that was measured since the process started."""
        return MetricsState(
            stages=[(*labels, sketch.export()) for labels, sketch in self._stages.items()],
            counters=[(name, dict(labels), child._value.get()) for (name, labels), child in self._counters.items()],
            gauges=[(name, dict(labels), child._value.get()) for (name, labels), child in self._gauges.items()],
            lag_ms=self._lag[()].export(),
            dropped=self._dropped._value.get(),
        )

    def absorb(self, state: MetricsState, *, worker: str | None) -> None:
        """Add what another process measured. Its gauges get its name; None = it has ended, and they mean nothing."""
        for stage, tier, bucket, sketch in state.stages:
            self._merge((stage, tier, bucket), QuantileSketch.of(sketch))
        for name, named, value in state.counters:
            self._add(name, named, value)
        for name, named, value in state.gauges if worker is not None else ():
            self.gauge(name, value, **named, worker=worker or "")
        self._lag[()].merge(QuantileSketch.of(state.lag_ms))
        self._dropped.inc(state.dropped)

    def _merge(self, labels: tuple[str, str, str], other: QuantileSketch) -> None:
        sketch = self._stages.get(labels)
        if sketch is not None:
            sketch.merge(other)
        elif len(self._stages) < SERIES_MAX:
            self._stages[labels] = other
        else:
            self._dropped.inc(other.count)

    def _family(self, kind: type[Any], name: str, labels: Mapping[str, str]) -> Any:
        family = self._families.get(name)
        if family is None:
            full = f"nearsay_{self.service}_{name}"
            family = self._families[name] = kind(full, name.replace("_", " "), list(labels), registry=self._registry)
        return family.labels(**labels) if labels else family


class _Sketches(Collector):
    """Sketches of milliseconds as one histogram family in seconds."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...],
        sketches: Mapping[Any, QuantileSketch],
        bounds_ms: tuple[float, ...],
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._sketches = sketches
        self._bounds_ms = bounds_ms

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, sketch in self._sketches.items():
            counts = sketch.at_most(self._bounds_ms)
            buckets = [(str(bound / 1e3), float(n)) for bound, n in zip(self._bounds_ms, counts, strict=True)]
            family.add_metric(labels, [*buckets, ("+Inf", float(sketch.count))], sketch.sum / 1e3)
        yield family


def _shown(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    return name + ("{" + ",".join(f"{key}={value}" for key, value in labels) + "}" if labels else "")
