from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.deadline import Deadline


def test_what_remains_shrinks_to_nothing() -> None:
    deadline = Deadline.after_ms(1500.0, now=10.0)
    assert deadline.remaining_ms(10.0) == 1500.0
    assert deadline.remaining_s(11.0) == 0.5
    assert deadline.remaining_ms(12.0) == 0.0
    assert not deadline.expired(11.4)
    assert deadline.expired(11.5)


def test_leaves_says_whether_something_still_fits() -> None:
    deadline = Deadline.after_ms(100.0, now=0.0)
    assert deadline.leaves(100.0, 0.0)
    assert not deadline.leaves(60.0, 0.05)


def test_a_negative_budget_is_an_expired_one() -> None:
    assert Deadline.after_ms(-5.0, now=3.0).expired(3.0)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_remaining_never_grows(budget_ms: float, now: float, later: float) -> None:
    deadline = Deadline.after_ms(budget_ms, now)
    assert deadline.remaining_ms(now + later) <= deadline.remaining_ms(now)
