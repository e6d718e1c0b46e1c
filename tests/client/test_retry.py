from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.client.retry import BACKOFF_MAX_S, backoff_s, default_budget


@given(attempt=st.integers(2, 50), chance=st.floats(0, 1, exclude_max=True))
def test_backoff_is_jittered_and_bounded(attempt: int, chance: float) -> None:
    assert 0 <= backoff_s(attempt, chance) <= BACKOFF_MAX_S
    assert backoff_s(attempt, chance) <= backoff_s(attempt + 1, chance)


def test_retries_stay_a_tenth_of_a_busy_client_s_load() -> None:
    budget = default_budget(now=0.0)
    granted = 0
    for _ in range(1_000):
        budget.deposit(0.5)
        granted += budget.withdraw(0.5)
    assert 100 <= granted <= 106
