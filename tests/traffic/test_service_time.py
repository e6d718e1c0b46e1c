from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.service_time import SHARE_MAX, ServiceTime


def pool(per_s: float, rate: float, seconds: float, run_s: float = 0.01) -> ServiceTime:
    """A pool that can do `per_s`, offered `rate` from an empty start: what fluid answers would teach."""
    learnt, backlog, step = ServiceTime(), 0.0, 0.01
    for i in range(int(seconds / step)):
        backlog = max(0.0, backlog + (rate - per_s) * step)
        learnt.observe(run_s=run_s, wait_s=backlog / per_s, depth=round(backlog), now=i * step)
    return learnt


def test_nobody_waits_in_a_pool_with_room() -> None:
    learnt = pool(per_s=100.0, rate=50.0, seconds=5.0)
    assert learnt.run_s == pytest.approx(0.01)
    assert learnt.wait_s(30, 5.0) == 0.0


def test_each_request_in_flight_adds_what_the_pool_needs_for_it() -> None:
    learnt = pool(per_s=100.0, rate=150.0, seconds=5.0)
    assert learnt.slope_s(5.0) == pytest.approx(1 / 100, rel=0.1)
    assert learnt.wait_s(499, 5.0) == pytest.approx(5.0, rel=0.1)
    assert learnt.wait_s(9, 5.0) == pytest.approx(0.1, rel=0.1), "it counts at once that the others have gone"


def test_silence_forgets_the_waiting_but_not_the_run() -> None:
    learnt = pool(per_s=100.0, rate=150.0, seconds=5.0)
    assert learnt.wait_s(0, 35.0) < 1e-4 * learnt.wait_s(0, 5.0)
    assert learnt.run_s == pytest.approx(0.01)


def test_rare_answers_are_not_believed_alone() -> None:
    learnt = ServiceTime()
    learnt.observe(run_s=0.01, wait_s=0.0, depth=0, now=0.0)
    learnt.observe(run_s=0.09, wait_s=0.0, depth=0, now=1000.0)
    assert learnt.run_s == pytest.approx(0.01 + 0.08 * SHARE_MAX)


def test_a_lasting_change_is_believed() -> None:
    learnt = ServiceTime()
    for i in range(1000):
        learnt.observe(run_s=0.01, wait_s=0.0, depth=0, now=i / 100)
    for i in range(2000):
        learnt.observe(run_s=0.05, wait_s=0.0, depth=0, now=10 + i / 100)
    assert learnt.run_s == pytest.approx(0.05, rel=0.15)


TIMES = st.floats(-1.0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(TIMES, TIMES, st.integers(0, 10_000), TIMES)), st.integers(0, 10_000), TIMES)
def test_estimates_stay_within_what_was_seen(
    answers: list[tuple[float, float, int, float]], depth: int, now: float
) -> None:
    learnt = ServiceTime()
    for run_s, wait_s, behind, at in answers:
        learnt.observe(run_s=run_s, wait_s=wait_s, depth=behind, now=at)
    runs = [max(0.0, run_s) for run_s, *_ in answers] or [0.0]
    waits = [max(0.0, wait_s) for _, wait_s, *_ in answers] or [0.0]
    assert min(runs) * 0.999 <= learnt.run_s <= max(runs) * 1.001
    assert 0.0 <= learnt.slope_s(now) <= max(waits) * 1.001
