from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.budget import RetryBudget


def drain(budget: RetryBudget, now: float, at_most: int = 10_000) -> int:
    granted = 0
    while granted < at_most and budget.withdraw(now):
        granted += 1
    return granted


def test_a_fifth_of_the_requests_may_be_retried() -> None:
    budget = RetryBudget(ratio=0.2, floor_per_s=0.0, ttl_s=10.0, now=0.0)
    assert not budget.withdraw(0.0)
    for _ in range(101):
        budget.deposit(0.0)
    assert drain(budget, 0.0) == 20


def test_the_floor_helps_a_quiet_service() -> None:
    budget = RetryBudget(ratio=0.0, floor_per_s=0.5, ttl_s=10.0, now=100.0)
    assert drain(budget, 100.0) == 5
    assert drain(budget, 105.0) == 0
    assert drain(budget, 111.0) == 5


def test_deposits_expire() -> None:
    budget = RetryBudget(ratio=1.0, floor_per_s=0.0, ttl_s=10.0, now=0.0)
    for _ in range(7):
        budget.deposit(0.0)
    assert budget.balance(9.0) == 7.0
    assert budget.balance(11.0) == 0.0


def test_a_long_silence_empties_every_window() -> None:
    budget = RetryBudget(ratio=1.0, floor_per_s=0.0, ttl_s=10.0, now=0.0)
    for second in range(10):
        budget.deposit(float(second))
    assert budget.balance(1e6) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=200))
def test_never_more_retries_than_were_paid_for(steps: list[tuple[bool, float]]) -> None:
    budget = RetryBudget(ratio=0.5, floor_per_s=0.2, ttl_s=10.0, now=0.0)
    now, deposits, granted = 0.0, 0, 0
    for is_deposit, elapsed in steps:
        now += elapsed
        if is_deposit:
            budget.deposit(now)
            deposits += 1
        else:
            granted += budget.withdraw(now)
    # The floor is granted afresh each ttl; one window of slack for the edges.
    assert granted <= 0.5 * deposits + 0.2 * (now + 10.0 + 1.0) + 1
