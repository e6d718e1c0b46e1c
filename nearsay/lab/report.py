"""What a load test found: exact percentiles over all its samples.

Latency runs from the instant a request was *due*, so a stall charges every request that fell into it, not only the one
that was waiting (coordinated omission; G. Tene, "How NOT to measure latency", 2013). Service time runs from the instant
it was sent; the difference between the two is the generator's or the in-flight limit's. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


class Sample(msgspec.Struct, frozen=True):
    """One request's instants in seconds from the start, and how it ended: `code` is "ok" or an error's code."""

    due_s: float
    sent_s: float
    ended_s: float
    code: str = "ok"
    tier: str = ""
    stages_ms: Mapping[str, float] = {}

    def shifted(self, by_s: float) -> Sample:
        """The same request, seen from another start."""
        return msgspec.structs.replace(
            self, due_s=self.due_s + by_s, sent_s=self.sent_s + by_s, ended_s=self.ended_s + by_s
        )


class Spread(msgspec.Struct, frozen=True):
    """Distribution of a duration in milliseconds; `percentiles` keys are "p50" and so on."""

    count: int
    mean: float
    max: float
    percentiles: dict[str, float]


class Report(msgspec.Struct, frozen=True):
    """Summary of a run. Rates are per second of the run; goodput counts ok answers within the deadline."""

    requests: int
    ok: int
    duration_s: float
    offered_per_s: float
    ok_per_s: float
    goodput_per_s: float
    latency_ms: Spread  # ok answers, from due
    service_ms: Spread  # ok answers, from sent
    late_ms: Spread  # all, from due to sent
    errors: dict[str, int]
    tiers: dict[str, int]
    stages_ms: dict[str, Spread]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Smallest value that at least `percent` of the ascending values don't exceed (nearest rank); NaN of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(values_ms: Sequence[float]) -> Spread:
    """Distribution of the values; all zero without any."""
    if not values_ms:
        return Spread(0, 0.0, 0.0, {})
    ordered = sorted(values_ms)
    percentiles = {f"p{percent:g}": percentile(ordered, percent) for percent in PERCENTILES}
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), ordered[-1], percentiles)


def summarise(samples: Sequence[Sample], deadline_ms: float) -> Report:
    """The report over a run's samples."""
    good = [sample for sample in samples if sample.code == "ok"]
    latencies_ms = [(sample.ended_s - sample.due_s) * 1e3 for sample in good]
    duration_s = max((sample.ended_s for sample in samples), default=0.0)
    return Report(
        requests=len(samples),
        ok=len(good),
        duration_s=duration_s,
        offered_per_s=_rate(len(samples), max((sample.due_s for sample in samples), default=0.0)),
        ok_per_s=_rate(len(good), duration_s),
        goodput_per_s=_rate(sum(latency <= deadline_ms for latency in latencies_ms), duration_s),
        latency_ms=spread(latencies_ms),
        service_ms=spread([(sample.ended_s - sample.sent_s) * 1e3 for sample in good]),
        late_ms=spread([(sample.sent_s - sample.due_s) * 1e3 for sample in samples]),
        errors=dict(Counter(sample.code for sample in samples if sample.code != "ok")),
        tiers=dict(Counter(sample.tier for sample in good)),
        stages_ms=_stages(good),
    )


def _stages(samples: Sequence[Sample]) -> dict[str, Spread]:
    values: dict[str, list[float]] = {}
    for sample in samples:
        for stage, value_ms in sample.stages_ms.items():
            values.setdefault(stage, []).append(value_ms)
    return {stage: spread(stage_values) for stage, stage_values in values.items()}


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
