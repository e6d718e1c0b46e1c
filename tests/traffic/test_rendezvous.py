from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.rendezvous import BALANCE, SLACK, capacity, key_of, ranked

NODES = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=12, unique=True)
KEYS = st.integers(0, 2**64 - 1)


def test_keys_are_the_same_in_every_process() -> None:
    assert key_of("default", "en-de", "Good morning") == 0x931CD3617C0A254A
    assert ranked(key_of("x"), [key_of(name) for name in "abcd"]) == [1, 3, 0, 2]


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_parts_are_kept_apart(one: list[str], other: list[str]) -> None:
    assert (key_of(*one) == key_of(*other)) == (one == other)


@given(KEYS, NODES)
def test_every_node_has_one_rank(key: int, nodes: list[int]) -> None:
    assert sorted(ranked(key, nodes)) == list(range(len(nodes)))


@given(KEYS, NODES, st.data())
def test_a_node_that_leaves_disturbs_nobody_else(key: int, nodes: list[int], data: st.DataObject) -> None:
    """What is left keeps its order, so only the keys of the one that left move, and each to its second choice."""
    gone = data.draw(st.sampled_from(nodes))
    left = [node for node in nodes if node != gone]
    before = [nodes[i] for i in ranked(key, nodes) if nodes[i] != gone]
    assert before == [left[i] for i in ranked(key, left)]


def test_keys_are_spread_evenly() -> None:
    nodes = [key_of(f"ws://edge-{i}/link") for i in range(8)]
    firsts = Counter(ranked(key_of(str(text)), nodes)[0] for text in range(8000))
    assert set(firsts) == set(range(8))
    assert max(firsts.values()) < 1.15 * 1000 and min(firsts.values()) > 0.85 * 1000


@given(st.integers(1, 8), st.integers(1, 400), st.integers(0, 2**32), st.integers(1, 3))
def test_the_bound_is_kept_however_keys_come(count: int, requests: int, seed: int, popular: int) -> None:
    """Requests of few keys come and go; nobody ever holds more than the bound, and somebody always has room."""
    random, nodes, load = Random(seed), [key_of(str(i)) for i in range(count)], [0] * count
    for _ in range(requests):
        if random.random() < 0.3 and sum(load):
            load[random.choice([i for i in range(count) if load[i]])] -= 1
            continue
        total = sum(load)
        room = capacity(total, count)
        order = [i for i in ranked(key_of(str(random.randrange(popular))), nodes) if load[i] < room]
        load[order[0]] += 1
        assert load[order[0]] <= max(SLACK, BALANCE * (total + 1) / count + 1)
