"""The fit behind the edge's run cost and the origin's step cost. What each makes of it is tested there."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.traffic.linear_cost import HUBER, LinearCost

TRUTH = (3.0, 0.5, 0.02)


def fit() -> LinearCost:
    return LinearCost((1.0, 1.0, 1.0), (1.0, 10.0, 100.0), first_min=0.1)


def cost_of(x: tuple[float, ...], truth: tuple[float, ...] = TRUTH) -> float:
    return sum(factor * value for factor, value in zip(truth, x, strict=True))


def test_it_finds_every_factor() -> None:
    rng, fitted = random.Random(1), fit()
    for _ in range(400):
        x = (1.0, rng.randint(1, 40), rng.choice([0, rng.randint(1, 300)]))
        fitted.observe(x, cost_of(x) * rng.uniform(0.95, 1.05))
    assert fitted.factors == pytest.approx(TRUTH, rel=0.05)


def test_what_cannot_be_told_apart_keeps_its_ratio() -> None:
    fitted = LinearCost((0.4, 0.1), (20.0, 60.0))
    for _ in range(50):
        fitted.observe((20, 20), 40.0)
    step, token = fitted.factors
    assert 20 * (step + token) == pytest.approx(40.0, rel=0.01)
    assert step / token == pytest.approx(4.0, rel=0.05)


def test_an_absent_feature_keeps_its_factor() -> None:
    fitted = fit()
    before = fitted.factors[2]
    for _ in range(100):
        fitted.observe((1.0, 3, 0), 50.0)
    assert fitted.factors[2] == before and fitted.expect((1.0, 3, 0)) == pytest.approx(50.0, rel=0.01)


def test_a_factor_may_be_nothing_and_the_first_has_a_least_value() -> None:
    fitted = fit()
    for count in range(300):
        fitted.observe((1.0, 1 + count % 20, 0), 0.5 * (1 + count % 20))
    assert fitted.factors[0] == pytest.approx(0.1, abs=0.02) and fitted.factors[1] == pytest.approx(0.5, rel=0.05)


def test_what_cannot_be_is_passed_over() -> None:
    fitted = fit()
    for cost in (0.0, -1.0, math.nan, math.inf):
        fitted.observe((1.0, 1, 1), cost)
    fitted.observe((0.0, 0, 0), 5.0)
    assert (fitted.seen, fitted.factors) == (0, [1.0, 1.0, 1.0])


positive = st.floats(1e-6, 1e9)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 512), st.integers(0, 5000), positive), max_size=60))
def test_it_stays_finite_and_no_factor_is_negative(observed: list[tuple[int, int, float]]) -> None:
    fitted = fit()
    for rows, tokens, cost in observed:
        fitted.observe((1.0, rows, tokens), cost)
        assert fitted.factors[0] >= 0.1 and min(fitted.factors) >= 0.0
        assert math.isfinite(fitted.expect((1.0, 512, 5000)))


@given(st.lists(positive, min_size=1, max_size=30), positive)
def test_one_observation_moves_the_expectation_of_its_like_by_a_bounded_share(seen: list[float], wild: float) -> None:
    fitted = LinearCost((1.0,), (1.0,))
    for cost in seen:
        fitted.observe((1.0,), cost)
    before = fitted.expect((1.0,))
    fitted.observe((1.0,), wild)
    assert fitted.expect((1.0,)) <= before * (1.0 + HUBER) * (1.0 + 1e-6)
