from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.codel import CoDel


def codel() -> CoDel:
    return CoDel(target_s=0.01, interval_s=0.1)


def test_a_burst_is_served() -> None:
    queue = codel()
    assert not any(queue.shed(0.5, at / 1000) for at in range(99))
    assert not queue.shed(0.009, 0.099)  # it has drained: the interval begins anew
    assert not any(queue.shed(0.5, 0.1 + at / 1000) for at in range(99))


def test_a_standing_queue_sheds_what_is_too_old_and_only_that() -> None:
    queue = codel()
    queue.shed(0.05, 0.0)
    assert queue.shed(0.05, 0.1)
    assert not queue.shed(0.02, 0.1)  # twice the target is young enough
    assert queue.shed(0.021, 0.11)
    queue.shed(0.01, 0.12)
    assert not queue.shed(0.05, 0.13)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.05)), max_size=200))
def test_nothing_is_shed_within_an_interval_of_a_short_wait(steps: list[tuple[float, float]]) -> None:
    queue, now, good_at = codel(), 0.0, 0.0
    for waited, elapsed in steps:
        now += elapsed
        if queue.shed(waited, now):
            assert waited > 0.02 and now - good_at >= 0.1
        if waited <= 0.01:
            good_at = now


def test_under_twice_the_load_half_is_served_young() -> None:
    """An open loop at twice the capacity: without shedding everybody would wait ever longer."""
    random, queue, waiting = Random(5), codel(), []
    now, served, shed = 0.0, [], 0
    for _ in range(20_000):
        now += 0.001  # a server that takes 1 ms
        waiting += [now - random.random() * 0.001 for _ in range(2)]
        while waiting:
            waited = now - waiting.pop(0)
            if not queue.shed(waited, now):
                served.append(waited)
                break
            shed += 1
    late = served[len(served) // 2 :]
    assert 0.45 < shed / 40_000 < 0.52
    assert max(late) < 0.03
