from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.standing import FAILURES_MAX, Standing

RECOVERY_S = 5.0


def there() -> Standing:
    standing = Standing()
    assert standing.see(True, 0.0) is None
    return standing


def left() -> Standing:
    standing = there()
    assert standing.see(False, 10.0) == "left"
    assert standing.see(True, 12.0) is None
    return standing


def test_the_first_time_it_is_used_at_once() -> None:
    standing = Standing()
    assert standing.see(False, 0.0) is None
    assert standing.well
    assert standing.see(True, 1.0) is None
    assert standing.well


def test_back_after_it_has_looked_well_and_answered_once() -> None:
    standing = left()
    assert not standing.due(16.9, RECOVERY_S)
    assert standing.due(17.0, RECOVERY_S)
    standing.try_once()
    assert not standing.due(17.0, RECOVERY_S), "one request at a time"
    assert standing.ended(True, 17.1, RECOVERY_S) == "returned"
    assert standing.well


def test_an_attempt_that_tells_nothing_gives_the_turn_back() -> None:
    standing = left()
    standing.try_once()
    assert standing.ended(None, 17.1, RECOVERY_S) is None
    assert standing.due(17.2, RECOVERY_S)


def test_a_break_begins_the_wait_anew() -> None:
    standing = left()
    assert standing.see(False, 14.0) is None, "it was left already"
    assert standing.see(True, 15.0) is None
    assert not standing.due(19.9, RECOVERY_S)
    standing.try_once()
    assert standing.ended(False, 20.0, RECOVERY_S) is None
    assert not standing.due(24.9, RECOVERY_S)
    assert standing.due(25.0, RECOVERY_S)


def test_failures_in_a_row_and_only_those_make_it_left() -> None:
    standing = there()
    for _ in range(3):
        for _ in range(FAILURES_MAX - 1):
            assert standing.ended(False, 1.0, RECOVERY_S) is None
        assert standing.ended(None, 1.0, RECOVERY_S) is None
        assert standing.ended(True, 1.0, RECOVERY_S) is None
    for _ in range(FAILURES_MAX - 1):
        standing.ended(False, 2.0, RECOVERY_S)
    assert standing.ended(False, 2.0, RECOVERY_S) == "left"
    assert standing.ended(True, 2.5, RECOVERY_S) is None, "an answer to what was sent before"
    assert not standing.well


STEPS = st.lists(
    st.tuples(st.sampled_from(["up", "down", "ok", "failed", "nothing", "try"]), st.floats(0.0, 4.0)), max_size=60
)


@given(STEPS)
def test_it_never_comes_back_sooner_than_it_may(steps: list[tuple[str, float]]) -> None:
    standing, now = there(), 0.0
    bad_since = 0.0  # the last thing that looked bad
    for step, passed_s in steps:
        now += passed_s
        was_well = standing.well
        if step in ("up", "down"):
            turn = standing.see(step == "up", now)
        elif step == "try":
            if standing.due(now, RECOVERY_S):
                standing.try_once()
            turn = None
        else:
            turn = standing.ended({"ok": True, "failed": False, "nothing": None}[step], now, RECOVERY_S)
        assert (turn == "left") == (was_well and not standing.well)
        assert (turn == "returned") == (not was_well and standing.well)
        if turn == "returned":
            assert step == "ok" and now - bad_since >= RECOVERY_S
        if step in ("down", "failed"):
            bad_since = now
