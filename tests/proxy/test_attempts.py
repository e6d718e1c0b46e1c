from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.concurrency import ConcurrencyRules
from nearsay.traffic.deadline import Deadline
from nearsay.traffic.hedging import HedgeRules
from nearsay.traffic.rendezvous import SLACK
from nearsay.wire.errors import CODES, LinkLost, NearsayError, Overloaded, Unavailable, from_code
from nearsay.wire.messages import Hello, LoadReport, State, Tier
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Endpoint, Permit
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool, Work

from .test_catalogue import model

LIMITS = AttemptLimits()


def first(_: int) -> int:
    return 0


def edge(
    name: str,
    *,
    pool: Pool | None = None,
    state: State = "ready",
    origin_ready: tuple[str, ...] = (),
    up: bool = True,
    local: bool = True,
    region: str = "",
) -> Endpoint:
    made = Endpoint(name, pool or Pool(LIMITS, 0.0), 0.0, region)
    hello = Hello("edge", models=(model("en", "de"),) if local else (), origin_pairs=("en-de",))
    made.update(up=True, hello=hello, load=LoadReport(state, origin_ready=origin_ready))
    made.up = up
    return made


def attempts(
    tier: Tier = "auto",
    *,
    budget: RetryBudget | None = None,
    limits: AttemptLimits = LIMITS,
    streamed: bool = False,
    session: bool = False,
    batch: bool = False,
    affinity: int | None = None,
) -> Attempts:
    budget = budget or RetryBudget(ratio=0.0, floor_per_s=100.0, ttl_s=10.0, now=0.0)
    work = Work.of("en-de", tier, "batch" if batch else "interactive", 50, streamed=streamed, session=session)
    return Attempts(limits, budget, Deadline.after_ms(10_000.0, 0.0), work, affinity)


def fails(tries: Attempts, permit: Permit | None, error: NearsayError, edges: list[Endpoint], now: float) -> bool:
    """The attempt ends with `error`; whether another one follows."""
    assert permit is not None
    permit.end("failed", now)
    tries.failed(permit.endpoint, error)
    return tries.again(error, edges, now)


def test_a_failed_attempt_goes_to_another_edge() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    one = tries.choose(edges, 0.0, first)
    assert fails(tries, one, Unavailable(), edges, 0.1)
    two = tries.choose(edges, 0.1, first)
    assert one is not None and two is not None and one.endpoint is not two.endpoint
    assert tries.number == 2


@pytest.mark.parametrize("code", sorted(CODES))
def test_only_retryable_errors_are_retried(code: str) -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    error = from_code(code)
    assert fails(tries, tries.choose(edges, 0.0, first), error, edges, 0.0) == isinstance(
        error, Overloaded | Unavailable
    )


def test_the_number_of_attempts_is_bounded_and_travels() -> None:
    edges, tries = [edge(name) for name in "abcdef"], attempts(limits=AttemptLimits(attempts_max=3))
    left = []
    for _ in range(3):
        permit = tries.choose(edges, 0.0, first)
        left.append(tries.left)
        again = fails(tries, permit, Unavailable(), edges, 0.0)
    assert left == [2, 1, 0]
    assert not again


def test_no_attempt_is_begun_that_the_deadline_has_no_room_for() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    assert not fails(tries, tries.choose(edges, 0.0, first), Unavailable(), edges, 9.99)


def test_a_retry_is_paid_from_the_budget() -> None:
    budget = RetryBudget(ratio=0.0, floor_per_s=0.1, ttl_s=10.0, now=0.0)
    edges = [edge("a"), edge("b")]
    for expected in (True, False):
        tries = attempts(budget=budget)
        assert fails(tries, tries.choose(edges, 0.0, first), Unavailable(), edges, 0.0) is expected


def test_a_refusal_costs_no_budget_when_there_is_nobody_else() -> None:
    budget = RetryBudget(ratio=0.0, floor_per_s=0.1, ttl_s=10.0, now=0.0)
    edges, tries = [edge("a")], attempts(budget=budget)
    assert not fails(tries, tries.choose(edges, 0.0, first), Overloaded(), edges, 0.0)
    assert budget.balance(0.0) == 1.0


def test_an_edge_that_said_no_is_not_asked_again() -> None:
    edges, tries = [edge("a"), edge("b")], attempts()
    one = tries.choose(edges, 0.0, first)
    assert one is not None
    assert fails(tries, one, Overloaded(), edges, 0.0)
    other = next(e for e in edges if e is not one.endpoint)
    other.up = False
    assert tries.choose(edges, 0.0, first) is None
    assert not tries.full


def test_an_edge_whose_link_broke_is_asked_again_once_it_is_back() -> None:
    edges, tries = [edge("a")], attempts()
    one = tries.choose(edges, 0.0, first)
    edges[0].up = False
    assert fails(tries, one, LinkLost(), edges, 0.0)
    assert tries.choose(edges, 0.0, first) is None
    edges[0].up = True
    two = tries.choose(edges, 0.1, first)
    assert two is not None and two.endpoint is edges[0]


def test_a_draining_or_warming_edge_gets_nothing() -> None:
    assert attempts().choose([edge("a", state="draining"), edge("b", state="starting")], 0.0, first) is None


def chosen(tries: Attempts, edges: list[Endpoint], seed: int = 0) -> Endpoint | None:
    permit = tries.choose(edges, 0.0, Random(seed).randrange)
    return None if permit is None else permit.endpoint


def test_who_asks_for_the_origin_gets_an_edge_that_has_it_up() -> None:
    edges = [edge("a"), edge("b", origin_ready=("en-de",)), edge("c")]
    for tier in ("origin", "refine"):
        for seed in range(10):
            assert chosen(attempts(tier), edges, seed) is edges[1]
    assert chosen(attempts("origin"), edges[:1]) is edges[0]


def test_the_next_region_is_asked_when_nobody_of_the_first_can_be() -> None:
    edges = [edge("a", region="near"), edge("b", region="near"), edge("c", region="far"), edge("d", region="far")]
    tries = attempts(limits=AttemptLimits(attempts_max=5))
    asked = []
    for seed in range(4):
        permit = tries.choose(edges, 0.0, Random(seed).randrange)
        assert permit is not None
        asked.append(permit.endpoint.region)
        assert fails(tries, permit, Overloaded(), edges, 0.0) == (seed < 3)
    assert asked == ["near", "near", "far", "far"]


def test_the_next_region_is_asked_when_nobody_of_the_first_has_room() -> None:
    limits = AttemptLimits(concurrency=ConcurrencyRules(limit_first=1, limit_min=1))
    edges = [edge(name, pool=Pool(limits, 0.0), region=region) for name, region in (("a", "near"), ("b", "far"))]
    assert [chosen(attempts(), edges) for _ in range(3)] == [*edges, None]


def test_a_region_without_its_origin_comes_after_one_that_has_it() -> None:
    edges = [edge("a", region="near"), edge("b", region="far", origin_ready=("en-de",))]
    assert chosen(attempts("origin"), edges) is edges[1]
    assert chosen(attempts("edge"), edges) is edges[0]


def test_a_far_edge_is_not_tried_again_for_requests_that_have_a_near_one() -> None:
    edges = [edge("a", region="near"), edge("b", region="far"), edge("c", region="far")]
    for one in edges[1:]:
        one.pool.ejector.join(0.0)
    eject(edges[1])
    assert chosen(attempts(), edges) is edges[0]
    assert attempts().choose(edges, 60.0, first) is not None
    edges[0].up = False
    permit = attempts().choose(edges, 60.0, first)
    assert permit is not None and permit.endpoint is edges[1] and permit.probe


def by_key(edges: list[Endpoint], key: int, *, session: bool = False) -> Permit:
    permit = attempts(affinity=key, session=session).choose(edges, 0.0, Random(key).randrange)
    assert permit is not None
    return permit


def test_equal_texts_meet_in_at_most_two_edges() -> None:
    edges = [edge(name) for name in "abcdef"]
    for key in range(20):
        permits = [by_key(edges, key) for _ in range(SLACK)]
        assert len({permit.endpoint.name for permit in permits}) == 2
        for permit in permits:
            permit.end("ignored", 0.0)


def test_a_key_prefers_the_less_loaded_of_its_two() -> None:
    edges = [edge(name) for name in "abcdef"]
    usual = by_key(edges, 7)
    usual.end("ok", 1.0)
    other = by_key(edges, 7)
    assert other.endpoint is not usual.endpoint
    other.end("ok", 2.0)
    assert by_key(edges, 7).endpoint is usual.endpoint


def test_a_session_stays_whatever_the_load_up_to_the_bound() -> None:
    edges = [edge(name) for name in "abcd"]
    permits = [by_key(edges, 3, session=True) for _ in range(SLACK)]
    home = permits[0].endpoint
    assert {permit.endpoint for permit in permits} == {home}
    permits.append(by_key(edges, 3, session=True))
    away = permits[-1].endpoint
    assert away is not home
    for permit in permits:
        permit.end("ok", 9.0)
    assert by_key(edges, 3, session=True).endpoint is home, "slow or not"
    home.up = False
    assert by_key(edges, 3, session=True).endpoint is away


def test_an_edge_without_the_pair_is_never_asked() -> None:
    other = Endpoint("x", Pool(LIMITS, 0.0), 0.0)
    other.update(up=True, hello=Hello("edge", models=(model("en", "pt"),)), load=None)
    assert attempts().choose([other], 0.0, first) is None


def test_an_origin_stands_in_where_no_edge_with_the_model_is_left() -> None:
    edges = [edge("a"), edge("b", local=False, origin_ready=("en-de",))]
    permit = attempts("edge").choose(edges, 0.0, first)
    assert permit is not None and (permit.endpoint, permit.tier) == (edges[0], "edge")
    edges[0].up = False
    tries = attempts("edge")
    permit = tries.choose(edges, 0.0, first)
    assert permit is not None and (permit.endpoint, permit.tier) == (edges[1], "origin")
    edges[1].update(up=True, hello=Hello("edge", origin_pairs=("en-de",)), load=LoadReport("ready"))
    assert attempts("edge").choose(edges, 0.0, first) is None


def test_a_stream_goes_on_where_its_models_are() -> None:
    edges = [edge(name) for name in "abc"]
    newer = msgspec.structs.replace(model("en", "de"), version="2")
    for one in (edges[0], edges[2]):
        one.update(up=True, hello=Hello("edge", models=(newer,)), load=None)
    for seed in range(10):
        tries = attempts(streamed=True)
        tries.models = frozenset({"en-de-edge@1"})
        assert chosen(tries, edges, seed) is edges[1]
        tries.models = frozenset({"en-de-edge@3"})
        assert chosen(tries, edges, seed) is not None  # it will have to restart there


def test_edges_at_their_limit_are_passed_over_and_waited_for() -> None:
    limits = AttemptLimits(concurrency=ConcurrencyRules(limit_first=1, limit_min=1))
    edges = [edge(name, pool=Pool(limits, 0.0)) for name in "ab"]
    taken = [attempts().choose(edges, 0.0, first), attempts().choose(edges, 0.0, first)]
    assert {permit.endpoint.name for permit in taken if permit} == {"a", "b"}
    tries = attempts()
    assert tries.choose(edges, 0.0, first) is None and tries.full
    assert tries.waits_for_room(edges, 0.0) is True
    assert taken[1] is not None
    taken[1].end("ignored", 0.0)
    assert tries.waits_for_room(edges, 0.0) is False
    assert tries.choose(edges, 0.0, first) is not None
    for one in edges:
        one.up = False
    assert tries.waits_for_room(edges, 0.0) is None
    # A limit that is only watched lets everybody in.
    dark = Pool(AttemptLimits(concurrency=ConcurrencyRules(limit_first=1, limit_min=1, mode="dark")), 0.0)
    one = edge("a", pool=dark)
    assert all(attempts().choose([one], 0.0, first) for _ in range(5))


def eject(one: Endpoint, now: float = 0.0) -> None:
    rules = one.pool.limits.ejection
    for at in (now - rules.bad_for_s, *[now] * (rules.bad_in_a_row - 1)):
        event = one.begin(Work.of("en-de", "auto", "interactive", 50), "auto", at).end("failed", at)
    assert event == "ejected"


def test_an_ejected_edge_is_left_out_until_one_request_has_seen_that_it_is_well() -> None:
    pool = Pool(LIMITS, 0.0)
    edges = [edge(name, pool=pool) for name in "abc"]
    eject(edges[0])
    assert {chosen(attempts(), edges, seed) for seed in range(20)} == set(edges[1:])
    later = LIMITS.ejection.ejection_s
    probe = attempts().choose(edges, later, first)
    assert probe is not None and probe.endpoint is edges[0] and probe.probe
    assert chosen(attempts(), edges) is not edges[0]  # one at a time
    assert probe.end("ok", later + 0.01) == "readmitted"
    assert not edges[0].ejected


def test_ejection_is_ignored_when_too_few_would_be_left() -> None:
    pool = Pool(LIMITS, 0.0)
    edges = [edge(name, pool=pool) for name in "abcd"]
    eject(edges[0])
    eject(edges[1])
    assert {chosen(attempts(), edges, seed) for seed in range(40)} == set(edges[2:])
    edges[2].up = False
    assert edges[0] in {chosen(attempts(), edges, seed) for seed in range(40)}


def informed(pool: Pool, kind_of: Attempts) -> Pool:
    for _ in range(100):
        pool.latencies.observe(kind_of.work.kind, 0.01, 0.0)
    return pool


def test_a_hedge_goes_elsewhere_and_is_paid_for() -> None:
    limits = AttemptLimits(hedging=HedgeRules(extra_load_max=0.0, floor_per_s=0.1))  # one in ten seconds
    pool = informed(Pool(limits, 0.0), attempts())
    edges = [edge(name, pool=pool) for name in "ab"]
    for expected in (True, False):
        tries = attempts(limits=limits)
        one = tries.choose(edges, 0.0, first)
        two = tries.hedge(edges, 0.02, first)
        assert one is not None and (two is not None) is expected
        else_stuck = tries.hedge(edges, 0.1, first, stuck=True)
        assert (else_stuck is None) is expected  # then the budget of retries pays
        if two is not None:
            assert two.endpoint is not one.endpoint
            assert tries.number == 2
            assert tries.hedge(edges, 0.02, first) is None  # nobody is left


@pytest.mark.parametrize(
    "unfit", [{"streamed": True}, {"session": True}, {"batch": True}, {"limits": AttemptLimits(attempts_max=1)}]
)
def test_what_may_not_run_twice_is_not_hedged(unfit: dict[str, bool]) -> None:
    tries = attempts(**unfit)  # type: ignore[arg-type]
    edges = [edge(name, pool=informed(Pool(LIMITS, 0.0), tries)) for name in "ab"]
    assert tries.choose(edges, 0.0, first) is not None
    assert tries.hedge(edges, 0.1, first) is None


def test_what_is_stuck_is_asked_in_another_region_first() -> None:
    pools = {name: informed(Pool(LIMITS, 0.0), attempts()) for name in ("near", "far")}
    edges = [
        edge(name, pool=pools[region], region=region) for name, region in (("a", "near"), ("b", "near"), ("c", "far"))
    ]
    for stuck, region in ((False, "near"), (True, "far")):
        tries = attempts()
        assert tries.choose(edges, 0.0, first) is not None
        hedge = tries.hedge(edges, 0.1, first, stuck=stuck)
        assert hedge is not None and hedge.endpoint.region == region


def test_a_hedge_needs_a_well_edge_with_room_and_time() -> None:
    limits = AttemptLimits(concurrency=ConcurrencyRules(limit_first=1, limit_min=1))

    def tried() -> tuple[Attempts, list[Endpoint]]:
        pool = informed(Pool(limits, 0.0), attempts())
        edges = [edge(name, pool=pool) for name in "ab"]
        tries = attempts(limits=limits)
        one = tries.choose(edges, 0.0, first)
        assert one is not None
        return tries, [e for e in edges if e is not one.endpoint]

    tries, [other] = tried()
    eject(other)
    assert tries.hedge([other], 0.1, first) is None
    tries, [other] = tried()
    other.begin(tries.work, "auto", 0.0)
    assert tries.hedge([other], 0.1, first) is None
    tries, [other] = tried()
    assert tries.hedge([other], 9.99, first) is None
    assert tries.hedge([other], 0.1, first) is not None


@given(
    st.integers(0, 2**32), st.lists(st.sampled_from(["overloaded", "link_lost", "unavailable", "draining", "hedge"]))
)
def test_attempts_end_whatever_happens(seed: int, events: list[str]) -> None:
    random = Random(seed)
    pool = Pool(LIMITS, 0.0)
    edges = [edge(name, pool=pool) for name in "abc"]
    tries = attempts()
    open_permits: list[Permit] = []
    begun = 0
    for event in events:
        if event == "hedge" and open_permits:
            permit = tries.hedge(edges, 0.0, random.randrange)
            assert permit is None or permit.endpoint not in [other.endpoint for other in open_permits]
        else:
            if open_permits and not fails(tries, open_permits.pop(), from_code(event), edges, 0.0):
                break
            permit = tries.choose(edges, 0.0, random.randrange)
        if permit is not None:
            open_permits.append(permit)
            begun += 1
    assert begun <= LIMITS.attempts_max
    for permit in open_permits:
        permit.end("ignored", 0.0)
    assert sum(one.in_flight for one in edges) == 0
