from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.traffic.rendezvous import SLACK
from nearsay.wire.errors import (
    CODES,
    InternalError,
    InvalidRequest,
    LinkLost,
    NearsayError,
    Overloaded,
    Unavailable,
    from_code,
)
from nearsay.wire.messages import Hello, LoadReport, State, Tier
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Endpoint
from proxy.core.limits import AttemptLimits

from .test_catalogue import model

LIMITS = AttemptLimits()


def first(_: int) -> int:
    return 0


def edge(
    name: str, *, state: State = "ready", origin_ready: tuple[str, ...] = (), up: bool = True, region: str = ""
) -> Endpoint:
    made = Endpoint(name, tau_s=10.0, failure_cost_s=1.0, now=0.0, region=region)
    hello = Hello("edge", models=(model("en", "de"),), origin_pairs=("en-de",))
    made.update(up=True, hello=hello, load=LoadReport(state, origin_ready=origin_ready))
    made.up = up
    return made


def attempts(
    tier: Tier = "auto",
    *,
    budget: RetryBudget | None = None,
    limits: AttemptLimits = LIMITS,
    affinity: int | None = None,
    session: bool = False,
) -> Attempts:
    budget = budget or RetryBudget(ratio=0.0, floor_per_s=100.0, ttl_s=10.0, now=0.0)
    deadline = Deadline.after_ms(10_000.0, 0.0)
    return Attempts(limits, budget, deadline, pair="en-de", tier=tier, affinity=affinity, session=session)


def test_a_failed_attempt_goes_to_another_edge() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    one = tries.choose(edges, 0.0, first)
    assert tries.again(Unavailable(), edges, 0.1)
    two = tries.choose(edges, 0.1, first)
    assert one is not None and two is not None and one is not two
    assert tries.number == 2


@pytest.mark.parametrize("code", sorted(CODES))
def test_only_retryable_errors_are_retried(code: str) -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    tries.choose(edges, 0.0, first)
    error = from_code(code)
    assert tries.again(error, edges, 0.0) == isinstance(error, Overloaded | Unavailable)


def test_nothing_is_retried_once_a_word_has_been_streamed() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    tries.choose(edges, 0.0, first)
    tries.streamed = True
    assert not tries.again(LinkLost(), edges, 0.0)


def test_the_number_of_attempts_is_bounded_and_travels() -> None:
    edges, tries = [edge(name) for name in "abcdef"], attempts(limits=AttemptLimits(attempts_max=3))
    left = []
    for _ in range(3):
        assert tries.choose(edges, 0.0, first) is not None
        left.append(tries.left)
        again = tries.again(Unavailable(), edges, 0.0)
    assert left == [2, 1, 0]
    assert not again


def test_no_attempt_is_begun_that_the_deadline_has_no_room_for() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    tries.choose(edges, 0.0, first)
    assert not tries.again(Unavailable(), edges, 9.99)


def test_a_retry_is_paid_from_the_budget() -> None:
    budget = RetryBudget(ratio=0.0, floor_per_s=0.1, ttl_s=10.0, now=0.0)
    edges = [edge("a"), edge("b")]
    for expected in (True, False):
        tries = attempts(budget=budget)
        tries.choose(edges, 0.0, first)
        assert tries.again(Unavailable(), edges, 0.0) is expected


def test_a_refusal_costs_no_budget_when_there_is_nobody_else() -> None:
    budget = RetryBudget(ratio=0.0, floor_per_s=0.1, ttl_s=10.0, now=0.0)
    edges, tries = [edge("a")], attempts(budget=budget)
    tries.choose(edges, 0.0, first)
    assert not tries.again(Overloaded(), edges, 0.0)
    assert budget.balance(0.0) == 1.0


def test_an_edge_that_said_no_is_not_asked_again() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    one = tries.choose(edges, 0.0, first)
    assert one is not None
    assert tries.again(Overloaded(), edges, 0.0)
    other = next(e for e in edges if e is not one)
    other.up = False
    assert tries.choose(edges, 0.0, first) is None


def test_an_edge_whose_link_broke_is_asked_again_once_it_is_back() -> None:
    edges, tries = [edge("a")], attempts()
    assert tries.choose(edges, 0.0, first) is edges[0]
    edges[0].up = False
    assert tries.again(LinkLost(), edges, 0.0)
    assert tries.choose(edges, 0.0, first) is None
    edges[0].up = True
    assert tries.choose(edges, 0.1, first) is edges[0]


def test_a_draining_or_warming_edge_gets_nothing() -> None:
    assert attempts().choose([edge("a", state="draining"), edge("b", state="starting")], 0.0, first) is None


def test_who_asks_for_the_origin_gets_an_edge_that_has_it_up() -> None:
    edges = [edge("a"), edge("b", origin_ready=("en-de",)), edge("c")]
    for tier in ("origin", "refine"):
        for seed in range(10):
            assert attempts(tier).choose(edges, 0.0, Random(seed).randrange) is edges[1]
    assert attempts("origin").choose([edges[0]], 0.0, first) is edges[0]


def test_an_edge_without_the_pair_is_never_asked() -> None:
    other = Endpoint("x", tau_s=10.0, failure_cost_s=1.0, now=0.0)
    other.update(up=True, hello=Hello("edge", models=(model("en", "pt"),)), load=None)
    assert attempts().choose([other], 0.0, first) is None


def test_the_next_region_is_asked_when_nobody_of_the_first_can_be() -> None:
    edges = [edge("a", region="near"), edge("b", region="near"), edge("c", region="far"), edge("d", region="far")]
    tries = attempts(limits=AttemptLimits(attempts_max=5))
    asked = []
    for seed in range(4):
        chosen = tries.choose(edges, 0.0, Random(seed).randrange)
        assert chosen is not None
        asked.append(chosen.region)
        assert tries.again(Overloaded(), edges, 0.0) == (seed < 3)
    assert asked == ["near", "near", "far", "far"]


def test_a_region_without_its_origin_comes_after_one_that_has_it() -> None:
    edges = [edge("a", region="near"), edge("b", region="far", origin_ready=("en-de",))]
    assert attempts("origin").choose(edges, 0.0, first) is edges[1]
    assert attempts("edge").choose(edges, 0.0, first) is edges[0]


def chosen_by_key(edges: list[Endpoint], key: int, *, session: bool = False) -> Endpoint:
    chosen = attempts(affinity=key, session=session).choose(edges, 0.0, Random(key).randrange)
    assert chosen is not None
    return chosen


def test_equal_texts_meet_in_at_most_two_edges() -> None:
    edges = [edge(name) for name in "abcdef"]
    for key in range(20):
        asked = set()
        for _ in range(SLACK):
            chosen = chosen_by_key(edges, key)
            chosen.started()
            asked.add(chosen.name)
        assert len(asked) == 2
        for one in edges:
            while one.in_flight:
                one.ended("ignored", tier="auto", chars=1, elapsed_s=0.0, now=0.0)


def test_a_key_prefers_the_less_loaded_of_its_two() -> None:
    edges = [edge(name) for name in "abcdef"]
    usual = chosen_by_key(edges, 7)
    usual.started()
    usual.ended("ok", tier="auto", chars=128, elapsed_s=1.0, now=0.0)
    other = chosen_by_key(edges, 7)
    assert other is not usual
    other.started()
    other.ended("ok", tier="auto", chars=128, elapsed_s=2.0, now=0.0)
    assert chosen_by_key(edges, 7) is usual


def test_a_session_stays_whatever_the_load_up_to_the_bound() -> None:
    edges = [edge(name) for name in "abcd"]
    home = chosen_by_key(edges, 3, session=True)
    for _ in range(SLACK):
        assert chosen_by_key(edges, 3, session=True) is home
        home.started()
    away = chosen_by_key(edges, 3, session=True)
    assert away is not home
    home.ended("ok", tier="auto", chars=128, elapsed_s=9.0, now=0.0)
    assert chosen_by_key(edges, 3, session=True) is home, "slow or not"
    home.up = False
    assert chosen_by_key(edges, 3, session=True) is away


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["overloaded", "link_lost", "unavailable", "draining"])))
def test_attempts_end_whatever_happens(seed: int, codes: list[str]) -> None:
    random, edges = Random(seed), [edge("a"), edge("b"), edge("c")]
    tries, begun = attempts(), 0
    for code in codes:
        if tries.choose(edges, 0.0, random.randrange) is None:
            break
        begun += 1
        if not tries.again(from_code(code), edges, 0.0):
            break
    assert begun <= LIMITS.attempts_max


def test_outcomes_feed_the_estimate_as_they_should() -> None:
    def load_after(error: NearsayError | None, *, ignored: bool = False) -> float:
        one = edge("a")
        one.started()
        outcome = "ignored" if ignored else "ok" if error is None else "failed"
        one.ended(outcome, tier="auto", chars=128, elapsed_s=0.01, now=1.0)  # type: ignore[arg-type]
        assert one.in_flight == 0
        return one.load("auto", 1.0)

    assert load_after(None) == pytest.approx(0.01)
    assert load_after(InternalError()) == 1.0  # failing fast isn't being fast
    assert load_after(InvalidRequest(), ignored=True) == 0.0


def test_a_long_text_does_not_make_its_edge_look_slow() -> None:
    short, long = edge("a"), edge("b")
    for one, chars, elapsed_s in ((short, 50, 0.02), (long, 12_800, 2.0)):
        one.started()
        one.ended("ok", tier="edge", chars=chars, elapsed_s=elapsed_s, now=0.0)
    assert long.load("edge", 0.0) == pytest.approx(short.load("edge", 0.0))
    assert long.load("origin", 0.0) == 0.0  # an estimate of its own
