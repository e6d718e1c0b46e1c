from __future__ import annotations

from nearsay.cli.restarts import BACKOFF_MAX_S, RESTARTS_MAX, STABLE_S, Restarts


def test_waits_double_up_to_a_bound_then_it_gives_up() -> None:
    restarts = Restarts()
    waits = [restarts.died(float(now)) for now in range(RESTARTS_MAX)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == BACKOFF_MAX_S
    assert restarts.died(100.0) is None
    assert restarts.count == RESTARTS_MAX


def test_a_stable_run_starts_a_new_row() -> None:
    restarts = Restarts()
    for now in range(RESTARTS_MAX):
        restarts.died(float(now))
    restarts.up(100.0)
    assert restarts.died(100.0 + STABLE_S) == 0.5
    assert restarts.count == RESTARTS_MAX + 1


def test_a_short_run_does_not() -> None:
    restarts = Restarts()
    assert restarts.died(0.0) == 0.5
    restarts.up(1.0)
    assert restarts.died(1.0 + STABLE_S / 2) == 1.0
