from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.quantiles import QuantileSketch

values = st.lists(st.floats(1e-3, 1e8), min_size=1, max_size=200)
quantiles = st.floats(0.0, 1.0)


def exact(numbers: list[float], q: float) -> float:
    return sorted(numbers)[math.floor(q * (len(numbers) - 1))]


@given(values, quantiles)
def test_every_quantile_is_within_the_relative_error(numbers: list[float], q: float) -> None:
    sketch = QuantileSketch(0.02)
    for number in numbers:
        sketch.add(number)
    assert sketch.quantile(q) == pytest.approx(exact(numbers, q), rel=0.0201)
    assert sketch.count == len(numbers) and sketch.sum == pytest.approx(sum(numbers))


@given(values, values, quantiles)
def test_merging_is_counting_both(left: list[float], right: list[float], q: float) -> None:
    parts = [QuantileSketch(), QuantileSketch()]
    whole = QuantileSketch()
    for sketch, numbers in zip(parts, (left, right), strict=True):
        for number in numbers:
            sketch.add(number)
            whole.add(number)
    parts[0].merge(parts[1])
    assert parts[0].quantile(q) == whole.quantile(q) and parts[0].count == whole.count


@given(values)
def test_counts_at_bounds_rise_and_end_at_the_count(numbers: list[float]) -> None:
    sketch = QuantileSketch()
    for number in numbers:
        sketch.add(number)
    bounds = [0.001, 0.1, 1, 10, 1e3, 1e6, 1.1e8]
    counts = sketch.at_most(bounds)
    assert counts == sorted(counts) and counts[-1] == len(numbers)
    for bound, count in zip(bounds, counts, strict=True):
        assert sum(n <= bound / 1.05 for n in numbers) <= count <= sum(n <= bound * 1.05 for n in numbers)


def test_memory_is_bounded_whatever_comes() -> None:
    sketch = QuantileSketch()
    rng = random.Random(7)
    for _ in range(20_000):
        sketch.add(10 ** rng.uniform(-300, 300) * rng.choice([1, 1, 1, -1]))
    assert len(sketch._buckets) <= sketch.buckets_max <= 634
    assert sketch.count == 20_000


def test_what_is_out_of_range_counts_at_the_border() -> None:
    sketch = QuantileSketch(lowest=1.0, highest=100.0)
    for number in (-5.0, 0.0, 0.5, 1e9):
        sketch.add(number)
    assert [sketch.quantile(q) for q in (0.0, 0.6)] == [0.0, 0.0]
    assert sketch.quantile(1.0) == pytest.approx(100.0, rel=0.0201)


def test_nothing_counted_yet() -> None:
    sketch = QuantileSketch()
    assert sketch.quantile(0.5) == 0.0 and sketch.at_most([1.0]) == [0]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(number: float) -> None:
    sketch = QuantileSketch()
    with pytest.raises(ValueError, match="finite"):
        sketch.add(number)
    assert sketch.count == 0


def test_shapes_must_match() -> None:
    with pytest.raises(AssertionError):
        QuantileSketch(0.02).merge(QuantileSketch(0.01))
