from __future__ import annotations

import heapq
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.concurrency import ConcurrencyRules, GradientLimit, Users

RULES = ConcurrencyRules(limit_first=20, limit_min=4, limit_max=200)


def settle(
    limit: GradientLimit, *, slots: int, busy_s: float = 0.02, offered: int = 10_000, seconds: float = 20.0
) -> int:
    """Keep a peer of `slots` servers and one queue as full as the limit and the demand allow; where the limit ends."""
    random, now = Random(1), 0.0
    ends: list[tuple[float, float, float]] = []  # end, busy, queued
    free = [0.0] * slots
    while now < seconds:
        while len(ends) < min(limit.limit, offered):
            start = max(now, heapq.heappop(free))
            busy = busy_s * random.uniform(0.5, 1.5)
            heapq.heappush(free, start + busy)
            heapq.heappush(ends, (start + busy, busy, start - now))
        now, busy, queued = heapq.heappop(ends)
        limit.observe(busy, queued, len(ends) + 1, now)
    return limit.limit


def test_the_limit_finds_the_peers_slots() -> None:
    for slots in (8, 32, 100):
        found = settle(GradientLimit(RULES, 0.0), slots=slots)
        assert slots <= found <= min(200, 2.5 * slots), (slots, found)


def test_a_slower_peer_needs_no_smaller_limit() -> None:
    """Only the queue counts: the same slots, five times slower, with no baseline to learn anew."""
    fast = settle(GradientLimit(RULES, 0.0), slots=16)
    slow = settle(GradientLimit(RULES, 0.0), slots=16, busy_s=0.1, seconds=60.0)
    assert abs(fast - slow) <= 0.25 * fast


def test_a_limit_that_is_not_reached_stays() -> None:
    assert settle(GradientLimit(RULES, 0.0), slots=100, offered=5) == 20


def test_a_lasting_overload_does_not_teach_a_longer_queue() -> None:
    short = settle(GradientLimit(RULES, 0.0), slots=8, seconds=10.0)
    assert abs(settle(GradientLimit(RULES, 0.0), slots=8, seconds=120.0) - short) <= 3


def test_a_user_alone_leaves_room_and_many_share() -> None:
    def gets(limit: int, others: int = 0, *, now: float = 0.0) -> int:
        """How many one user gets beside so many of another's."""
        users = Users(RULES)
        for _ in range(max(1, others)):
            users.enter("other", 0.0)
        users.enter("me", 0.0)
        users.leave("me")
        for _ in range(others, max(1, others)):
            users.leave("other")
        mine = 0
        while users.has_room("me", limit, now):
            users.enter("me", now)
            mine += 1
        return mine

    assert [gets(limit) for limit in (1, 2, 10, 100)] == [1, 2, 8, 80]
    assert gets(100, others=80) == 16  # a second flood: four fifths of what the first one left
    assert gets(10, others=10) == 0 == gets(4, others=100)  # a limit may have shrunk below what is in flight
    assert gets(10, now=RULES.alone_s + 1.0) == 10  # nobody else has come for a minute


def test_a_user_who_has_always_been_alone_has_it_all() -> None:
    users = Users(RULES)
    for number in range(10):
        assert users.has_room("me", 10, float(number))
        users.enter("me", float(number))
    assert not users.has_room("me", 10, 11.0)
    users.leave("me")
    assert users.has_room("other", 10, 12.0)
    users.enter("other", 12.0)
    users.leave("other")
    assert not users.has_room("me", 10, 13.0)  # there are two now: room is left


def test_refusals_cut_it_at_once_down_to_the_least() -> None:
    limit = GradientLimit(RULES, 0.0)
    limit.refused()
    assert limit.limit == 18
    for _ in range(100):
        limit.refused()
    assert limit.limit == RULES.limit_min


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.floats(0, 10), st.integers(0, 10_000), st.floats(0, 1), st.booleans()),
        max_size=300,
    )
)
def test_the_bounds_hold_and_a_step_is_bounded(steps: list[tuple[float, float, int, float, bool]]) -> None:
    limit = GradientLimit(RULES, 0.0)
    now = 0.0
    for busy, queued, in_flight, elapsed, refused in steps:
        now += elapsed
        before = limit.limit
        if refused:
            limit.refused()
        else:
            limit.observe(busy, queued, in_flight, now)
        assert RULES.limit_min <= limit.limit <= RULES.limit_max
        assert 0.5 * before - 1 <= limit.limit <= 1.5 * before + 1
