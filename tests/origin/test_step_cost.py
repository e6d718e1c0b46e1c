"""The step-cost model: it finds the truth, follows it, and isn't led astray."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origin.core.step_cost import PRIOR, StepCost, Work

TRUTH = (0.012, 0.0004, 0.0001)


def seconds(work: Work, truth: tuple[float, float, float] = TRUTH) -> float:
    return truth[0] + truth[1] * work.rows + truth[2] * work.tokens


def draw(chance: random.Random) -> Work:
    return Work(chance.randint(1, 48), chance.choice((0, 0, 0, chance.randint(5, 300))))


def fit(steps: int, seed: int, *, noise: float = 0.0, outliers: float = 0.0, cost: StepCost | None = None) -> StepCost:
    chance, cost = random.Random(seed), cost or StepCost()
    for _ in range(steps):
        work = draw(chance)
        factor = 30.0 if chance.random() < outliers else 1.0 + chance.gauss(0.0, noise)
        cost.observe(work, seconds(work) * max(factor, 0.1))
    return cost


def worst(cost: StepCost, truth: tuple[float, float, float] = TRUTH) -> float:
    works = [Work(1), Work(8), Work(48), Work(4, 20), Work(32, 300)]
    return max(abs(cost.predict(work) / seconds(work, truth) - 1.0) for work in works)


def test_before_it_has_seen_anything_it_says_something_sensible() -> None:
    assert StepCost().predict(Work(10, 20)) == pytest.approx(PRIOR[0] + 10 * PRIOR[1] + 20 * PRIOR[2])
    assert StepCost().predict(Work()) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_truth(seed: int) -> None:
    assert worst(fit(400, seed)) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_it_is_near_after_a_second_of_steps(seed: int) -> None:
    assert worst(fit(60, seed, noise=0.05)) < 0.25


@pytest.mark.parametrize("seed", range(5))
def test_slow_steps_do_not_lead_it_astray(seed: int) -> None:
    assert worst(fit(600, seed, noise=0.1, outliers=0.02)) < 0.2


def test_a_slow_first_step_is_forgotten() -> None:
    cost = StepCost()
    cost.observe(Work(1), 3.0)
    assert worst(fit(100, 1, cost=cost)) < 0.1


@pytest.mark.parametrize("factor", [0.2, 4.0])
def test_it_follows_a_machine_that_changes(factor: float) -> None:
    cost, chance = fit(500, 1), random.Random(2)
    truth = (TRUTH[0] * factor, TRUTH[1] * factor, TRUTH[2] * factor)
    for _ in range(250):
        work = draw(chance)
        cost.observe(work, seconds(work, truth))
    assert worst(cost, truth) < 0.1


def test_an_hour_of_single_rows_winds_nothing_up() -> None:
    cost = fit(400, 3)
    for _ in range(20_000):
        cost.observe(Work(1), seconds(Work(1)))
    assert cost.predict(Work(1)) == pytest.approx(seconds(Work(1)), rel=0.01)
    assert cost.predict(Work(32, 100)) == pytest.approx(seconds(Work(32, 100)), rel=0.25)


def test_times_that_cannot_be_are_passed_over() -> None:
    cost = StepCost()
    for value in (0.0, -1.0, float("nan"), float("inf")):
        cost.observe(Work(1), value)
    cost.observe(Work(0, 5), 1.0)
    assert (cost.seen, cost.predict(Work(1))) == (0, PRIOR[0] + PRIOR[1])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 512), st.integers(0, 5000), st.floats(1e-7, 1e5)),
        max_size=60,
    )
)
def test_it_stays_finite_and_never_negative(observed: list[tuple[int, int, float]]) -> None:
    cost = StepCost()
    for rows, tokens, value in observed:
        cost.observe(Work(rows, tokens), value)
        assert cost.base_s > 0.0 and cost.row_s >= 0.0 and cost.token_s >= 0.0
        assert math.isfinite(cost.predict(Work(512, 5000)))
