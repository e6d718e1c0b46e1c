from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.run_cost import PRIOR_STEP_MS, PRIOR_TOKEN_MS, RunCost

batches = st.lists(st.tuples(st.lists(st.integers(1, 256), min_size=1, max_size=32), st.floats(-1.0, 1e5)), max_size=30)


def test_it_finds_both_factors_in_noise() -> None:
    rng, cost = random.Random(1), RunCost()
    for _ in range(200):
        tokens = [rng.randint(3, 40) for _ in range(rng.choice([1, 2, 4, 8, 16]))]
        cost.observe(tokens, (0.7 * max(tokens) + 0.25 * sum(tokens)) * rng.uniform(0.9, 1.1))
    assert cost.step_ms == pytest.approx(0.7, rel=0.15)
    assert cost.token_ms == pytest.approx(0.25, rel=0.15)


def test_single_sentences_teach_their_own_cost_and_keep_the_priors_ratio() -> None:
    cost = RunCost()
    for _ in range(100):
        cost.observe([20], 40.0)
    assert cost.run_ms(20, 20) == pytest.approx(40.0, rel=0.02)
    assert cost.step_ms > 0 and cost.token_ms > 0


def test_it_follows_a_machine_that_slows_down() -> None:
    cost = RunCost()
    for _ in range(300):
        cost.observe([20, 10], 12.0)
    for _ in range(200):
        cost.observe([20, 10], 36.0)
    assert cost.run_ms(20, 30) == pytest.approx(36.0, rel=0.1)


def test_an_engine_that_gains_nothing_from_batches() -> None:
    cost = RunCost()
    for rows in (1, 2, 3, 4) * 50:
        cost.observe([10] * rows, 3.0 * rows)
    assert cost.run_ms(10, 40) == pytest.approx(12.0, rel=0.1)


@given(batches)
def test_more_rows_never_look_cheaper(seen: list[tuple[list[int], float]]) -> None:
    cost = RunCost()
    assert (cost.step_ms, cost.token_ms) == (PRIOR_STEP_MS, PRIOR_TOKEN_MS)
    for tokens, run_ms in seen:
        cost.observe(tokens, run_ms)
        assert cost.step_ms >= 0 and cost.token_ms >= 0
        assert 0 <= cost.run_ms(10, 10) <= cost.run_ms(10, 20) <= cost.run_ms(12, 22)
