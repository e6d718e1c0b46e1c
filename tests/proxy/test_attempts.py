from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
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


def edge(name: str, *, state: State = "ready", origin_ready: tuple[str, ...] = (), up: bool = True) -> Endpoint:
    made = Endpoint(name, tau_s=10.0, failure_cost_s=1.0, now=0.0)
    hello = Hello("edge", models=(model("en", "de"),), origin_pairs=("en-de",))
    made.update(up=True, hello=hello, load=LoadReport(state, origin_ready=origin_ready))
    made.up = up
    return made


def attempts(tier: Tier = "auto", *, budget: RetryBudget | None = None, limits: AttemptLimits = LIMITS) -> Attempts:
    budget = budget or RetryBudget(ratio=0.0, floor_per_s=100.0, ttl_s=10.0, now=0.0)
    return Attempts(limits, budget, Deadline.after_ms(10_000.0, 0.0), pair="en-de", tier=tier)


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
