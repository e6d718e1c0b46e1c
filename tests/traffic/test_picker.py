from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.picker import pick


def test_one_endpoint_needs_no_chance() -> None:
    def no_chance(_: int) -> int:
        raise AssertionError("chance was drawn")

    assert pick(1, lambda _: 5.0, no_chance) == 0


@given(st.lists(st.floats(0, 10), min_size=2, max_size=8), st.integers(0, 2**32))
def test_the_most_loaded_alone_is_never_picked(loads: list[float], seed: int) -> None:
    chosen = pick(len(loads), loads.__getitem__, Random(seed).randrange)
    assert loads[chosen] < max(loads) or loads.count(max(loads)) > 1


def test_two_distinct_endpoints_are_compared() -> None:
    read: list[int] = []

    def load(index: int) -> float:
        read.append(index)
        return 0.0

    random = Random(3)
    for _ in range(200):
        read.clear()
        pick(4, load, random.randrange)
        assert len(set(read)) == 2


def test_equal_loads_are_shared_evenly() -> None:
    random = Random(7)
    counts = Counter(pick(4, lambda _: 1.0, random.randrange) for _ in range(4000))
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_queues_stay_short_where_plain_chance_lets_them_grow() -> None:
    random, two, one = Random(11), [0] * 100, [0] * 100
    for _ in range(10_000):
        two[pick(100, two.__getitem__, random.randrange)] += 1
        one[random.randrange(100)] += 1
    assert max(two) <= 103
    assert max(one) > 115
