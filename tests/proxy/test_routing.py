from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.fleet import Features, Fleet
from proxy.core.fleet_view import FleetView, restored, view
from proxy.core.routing import PROBE_AGE_S, PROBE_EVERY, Decision, forward
from proxy.core.routing_config import Region, RoutingConfig, Spill, Tenant
from tests.kit.fleets import answer, down, features, fleet_of, region, up

RTTS = {"eu": 10.0, "us": 90.0, "ap": 200.0}


def send(fleet: Fleet, now: float = 0.0, **fields: Any) -> Decision:
    """Decide a request and make it so; it stays in flight."""
    decision = forward(features(**fields), fleet, now)
    assert decision.region, decision
    fleet.took(features(**fields), decision.region, home=decision.home, probe=decision.why == "probe")
    fleet.regions[decision.region].endpoints[0].in_flight += 1
    return decision


def free(fleet: Fleet) -> None:
    """Nothing is in flight any more."""
    for endpoint in fleet.endpoints:
        endpoint.in_flight = 0


def order(decision: Decision) -> list[str]:
    return [option.region for option in decision.options]


class TestTheFastest:
    def test_nothing_measured_distance_decides(self) -> None:
        decision = send(fleet_of({"ap": 200.0, "eu": 10.0, "us": 90.0}))
        assert order(decision) == ["eu", "us", "ap"]
        assert (decision.why, decision.home) == ("fastest", "eu")

    def test_run_time_counts_and_by_the_length_of_the_text(self) -> None:
        fleet = fleet_of({"near": 10.0, "far": 30.0})
        answer(fleet, "near", run_ms=40.0)
        answer(fleet, "far", run_ms=15.0)
        assert send(fleet, chars=96).region == "far"
        short = forward(features(chars=0), fleet, 0.0).options
        assert [option.region for option in short] == ["near", "far"]
        assert [option.expected_ms for option in short] == pytest.approx([10.0 + 40.0 / 4, 30.0 + 15.0 / 4])

    def test_a_region_that_nobody_has_asked_is_thought_to_be_like_the_others(self) -> None:
        fleet = fleet_of({"near": 10.0, "far": 30.0})
        answer(fleet, "far", run_ms=15.0)
        decision = forward(features(), fleet, 0.0)
        assert decision.region == "near"
        assert decision.options[0].expected_ms == pytest.approx(25.0)

    def test_a_region_whose_distance_is_not_known_comes_last(self) -> None:
        assert order(send(fleet_of({"new": None, "eu": 10.0, "ap": 300.0}))) == ["eu", "ap", "new"]

    def test_of_the_tiers_each_has_its_own_time(self) -> None:
        fleet = fleet_of({"near": 10.0, "far": 30.0})
        refine = features(tier="refine")
        fleet.answered("near", refine, accounted_ms=300.0, stages_ms={}, depth=0, now=0.0)
        fleet.answered("far", refine, accounted_ms=100.0, stages_ms={}, depth=0, now=0.0)
        assert forward(refine, fleet, 0.0).region == "far"
        assert forward(features(tier="edge"), fleet, 0.0).region == "near"

    def test_who_wants_the_origin_goes_where_it_is_linked(self) -> None:
        fleet = fleet_of({"near": 10.0, "far": 90.0})
        fleet.regions["far"].endpoints[0].origin_ready = frozenset({"en-de"})
        decision = send(fleet, tier="origin")
        assert order(decision) == ["far", "near"]
        assert forward(features(), fleet, 0.0).region == "near"
        fleet.regions["near"].endpoints[0].origin_ready = frozenset({"en-de"})
        assert send(fleet, tier="origin").region == "near"


class TestLoad:
    def test_past_its_utilisation_a_region_overflows_into_the_next(self) -> None:
        config = RoutingConfig(regions={"eu": region("eu", in_flight_max=10), "us": region("us", in_flight_max=10)})
        fleet = fleet_of({"eu": 10.0, "us": 90.0}, config)
        gone = [send(fleet) for _ in range(20)]
        assert [d.region for d in gone[:8]] == ["eu"] * 8
        assert [d.region for d in gone[8:16]] == ["us"] * 8
        assert Counter(d.region for d in gone[16:]) == {"eu": 2, "us": 2}, "past it in both, the emptier one"
        assert {d.why for d in gone if d.region == "us"} == {"spill_load"}
        assert {d.home for d in gone} == {"eu"}, "load moves requests, not their home"
        full = forward(features(), fleet, 0.0)
        assert full.options == () and full.refused == {"eu": "full", "us": "full"}

    def test_a_session_stays_up_to_the_limit(self) -> None:
        config = RoutingConfig(regions={"eu": region("eu", in_flight_max=10), "us": region("us")})
        fleet = fleet_of({"eu": 10.0, "us": 90.0}, config)
        gone = [send(fleet, session="s") for _ in range(11)]
        assert [d.region for d in gone] == ["eu"] * 10 + ["us"]

    def test_nor_does_waiting_move_a_session(self) -> None:
        fleet = fleet_of({"eu": 10.0, "us": 90.0})
        answer(fleet, "eu", run_ms=10.0, wait_ms=5000.0, depth=9)
        assert (send(fleet).region, send(fleet, session="s").region) == ("us", "eu")
        down(fleet, "eu", 1.0)
        assert send(fleet, 1.0, session="s").region == "us"

    def test_waiting_counts_from_the_first_request_on(self) -> None:
        """5 ms for each in flight: the 16th would wait for longer than the other region is away."""
        fleet = fleet_of({"eu": 10.0, "us": 85.0})
        for name in ("eu", "us"):
            answer(fleet, name, run_ms=10.0)
        answer(fleet, "eu", run_ms=10.0, wait_ms=50.0, depth=9, now=100.0)
        slope_ms = fleet.regions["eu"].times["edge"].slope_s(100.0) * 1e3
        gone = [send(fleet, 100.0) for _ in range(40)]
        stayed = next(i for i, d in enumerate(gone) if d.region == "us")
        assert stayed == pytest.approx((85.0 + 5.0 - 10.0) / slope_ms, abs=1.0)
        assert {d.why for d in gone[stayed:] if d.region == "us"} == {"spill_load"}
        free(fleet)
        assert send(fleet, 100.0).region == "eu", "who waited has gone"

    def test_another_region_must_be_faster_by_the_margin(self) -> None:
        fleet = fleet_of({"a": 20.0, "b": 21.0}, spill=Spill(margin_ms=5.0))
        assert send(fleet).region == "a"
        fleet.regions["b"].endpoints[0].rtt_s = 0.0151
        assert send(fleet).region == "a"
        fleet.regions["b"].endpoints[0].rtt_s = 0.0149
        assert (send(fleet).region, send(fleet).home) == ("b", "b")
        fleet.regions["b"].endpoints[0].rtt_s = 0.0249
        assert send(fleet).region == "b"

    def test_noise_within_the_margin_never_flaps(self) -> None:
        random, fleet = Random(5), fleet_of({"a": 20.0, "b": 20.0})
        homes = set()
        for step in range(2000):
            now = step / 100
            for name in ("a", "b"):
                answer(fleet, name, run_ms=random.gauss(15.0, 4.0), now=now)
            homes.add(send(fleet, now).home)
            free(fleet)
        assert len(homes) == 1


class TestTrouble:
    def test_killed_and_back(self) -> None:
        fleet = fleet_of(RTTS, spill=Spill(recovery_s=5.0))
        assert send(fleet, 1.0).why == "fastest"
        down(fleet, "eu", 10.0)
        gone = send(fleet, 10.0)
        assert (gone.region, gone.why, gone.home, gone.refused) == ("us", "spill_health", "eu", {"eu": "down"})
        up(fleet, "eu", 20.0)
        assert [send(fleet, now).region for now in (20.0, 22.0, 24.9)] == ["us"] * 3
        tried = send(fleet, 25.0)
        assert (tried.region, tried.why) == ("eu", "probe")
        assert send(fleet, 25.0).region == "us", "one is enough to try it"
        assert fleet.ended(fleet.regions["eu"].endpoints[0], "ok", 25.1) == "returned"
        assert [send(fleet, 25.1).why for _ in range(3)] == ["fastest"] * 3

    def test_a_region_that_was_left_is_better_than_none(self) -> None:
        fleet = fleet_of({"eu": 10.0})
        down(fleet, "eu", 10.0)
        assert forward(features(), fleet, 10.0).options == ()
        up(fleet, "eu", 11.0)
        assert send(fleet, 11.0).region == "eu"

    def test_a_region_all_of_whose_attempts_fail_is_left(self) -> None:
        fleet = fleet_of(RTTS)
        [eu] = fleet.regions["eu"].endpoints
        assert send(fleet, 1.0).region == "eu"
        turns = [fleet.ended(eu, "failed", 1.0) for _ in range(5)]
        assert turns == [None] * 4 + ["left"]
        assert send(fleet, 1.0).why == "spill_health"

    def test_a_region_without_the_pair_is_no_option(self) -> None:
        fleet = fleet_of(RTTS)
        fleet.regions["eu"].endpoints[0].edge_pairs = fleet.regions["eu"].endpoints[0].origin_pairs = frozenset()
        decision = send(fleet)
        assert (decision.region, decision.refused) == ("us", {"eu": "unserved"})

    def test_a_home_that_lost_the_pair_is_forgotten(self) -> None:
        fleet = fleet_of(RTTS)
        assert send(fleet).home == "eu"
        fleet.regions["eu"].endpoints[0].edge_pairs = fleet.regions["eu"].endpoints[0].origin_pairs = frozenset()
        assert (send(fleet).home, send(fleet).why) == ("us", "fastest")


class TestBatch:
    CONFIG = RoutingConfig(regions={"eu": region("eu"), "us": region("us", cost=0.4), "ap": region("ap", cost=0.2)})

    def test_the_cheapest_that_is_in_time(self) -> None:
        fleet = fleet_of(RTTS, self.CONFIG)
        for name in RTTS:
            answer(fleet, name, run_ms=20.0)
        decision = send(fleet, priority="batch", deadline_ms=10_000.0)
        assert (order(decision), decision.why) == (["ap", "us", "eu"], "cheapest")
        assert order(send(fleet, priority="batch", deadline_ms=300.0)) == ["us", "eu", "ap"]
        assert send(fleet, deadline_ms=300.0).region == "eu", "not for who waits"

    def test_in_none_in_time_the_fastest(self) -> None:
        fleet = fleet_of(RTTS, self.CONFIG)
        assert order(send(fleet, priority="batch", deadline_ms=1.0)) == ["eu", "us", "ap"]

    def test_of_equally_cheap_ones_the_fastest(self) -> None:
        assert order(send(fleet_of(RTTS), priority="batch")) == ["eu", "us", "ap"]

    def test_a_cheap_region_that_fills_overflows(self) -> None:
        config = msgspec.structs.replace(
            self.CONFIG, regions=self.CONFIG.regions | {"ap": region("ap", cost=0.2, in_flight_max=5)}
        )
        fleet = fleet_of(RTTS, config)
        assert [send(fleet, priority="batch").region for _ in range(5)] == ["ap"] * 4 + ["us"]


class TestProbes:
    def fleet(self) -> Fleet:
        """`near` was slow when it was last asked, 60 s ago; now `far` is first."""
        fleet = fleet_of({"near": 10.0, "far": 40.0})
        answer(fleet, "near", run_ms=80.0, now=0.0)
        answer(fleet, "far", run_ms=20.0, now=59.0)
        return fleet

    def test_a_region_that_only_old_figures_keep_away_is_asked_now_and_then(self) -> None:
        fleet = self.fleet()
        gone = [send(fleet, 60.0) for _ in range(3 * PROBE_EVERY)]
        assert Counter(d.region for d in gone) == {"far": 3 * PROBE_EVERY - 2, "near": 2}
        assert {d.why for d in gone if d.region == "near"} == {"probe"}
        assert {d.home for d in gone} == {"far"}

    def test_what_it_answers_is_believed(self) -> None:
        fleet = self.fleet()
        for step in range(20 * PROBE_EVERY):
            now = 60.0 + step / 50
            decision = send(fleet, now)
            free(fleet)
            answer(fleet, decision.region, run_ms=20.0, now=now)
        assert (decision.region, decision.why) == ("near", "fastest")

    def test_no_probe_goes_where_distance_alone_is_too_much(self) -> None:
        fleet = fleet_of({"near": 10.0, "far": 40.0})
        answer(fleet, "near", run_ms=20.0, now=60.0)
        assert {send(fleet, 60.0).region for _ in range(3 * PROBE_EVERY)} == {"near"}

    @pytest.mark.parametrize("fields", [{"session": "s"}, {"deadline_ms": 500.0}])
    def test_who_has_something_to_lose_is_no_probe(self, fields: dict[str, Any]) -> None:
        fleet = self.fleet()
        assert {send(fleet, 60.0, **fields).region for _ in range(2 * PROBE_EVERY)} == {"far"}

    def test_nor_is_a_region_asked_that_has_just_answered(self) -> None:
        fleet = self.fleet()
        answer(fleet, "near", run_ms=80.0, now=60.0 - PROBE_AGE_S / 2)
        assert {send(fleet, 60.0).region for _ in range(2 * PROBE_EVERY)} == {"far"}


NAMES = ("a", "b", "c", "d")
RULES = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
CONFIGS = st.builds(
    RoutingConfig,
    regions=st.fixed_dictionaries(
        {
            name: st.builds(
                region,
                st.just(name),
                st.integers(1, 3),
                cost=st.sampled_from([0.5, 1.0]),
                in_flight_max=st.integers(1, 9),
            )
            for name in NAMES
        }
    ),
    residency=st.dictionaries(st.sampled_from(["DE", "US"]), RULES),
    tenants=st.dictionaries(st.just("acme"), st.builds(Tenant, regions=RULES)),
    spill=st.builds(Spill, utilisation=st.sampled_from([0.5, 0.8]), margin_ms=st.sampled_from([0.0, 5.0])),
)
FEATURES = st.builds(
    Features,
    pair=st.sampled_from(["en-de", "en-fr"]),
    tier=st.sampled_from(["auto", "edge", "origin", "refine"]),
    priority=st.sampled_from(["interactive", "batch"]),
    chars=st.integers(1, 2000),
    tenant=st.sampled_from(["default", "acme"]),
    country=st.sampled_from(["", "DE", "FR"]),
    session=st.sampled_from(["", "s"]),
    deadline_ms=st.sampled_from([50.0, 10_000.0]),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Fleet, float]:
    """A fleet after a life of its own."""
    fleet = fleet_of({name: draw(st.floats(1.0, 300.0)) for name in NAMES}, draw(CONFIGS))
    random, now = Random(draw(st.integers(0, 2**32))), 0.0
    for _ in range(draw(st.integers(0, 60))):
        now += random.expovariate(2.0)
        asked = Features(pair="en-de", tenant=random.choice(["default", "acme"]), country=random.choice(["", "DE"]))
        decision = forward(asked, fleet, now)
        name = random.choice(NAMES)
        if decision.region:
            fleet.took(asked, decision.region, home=decision.home, probe=decision.why == "probe")
            random.choice(fleet.regions[decision.region].endpoints).in_flight += 1
        if random.random() < 0.3:
            (down if random.random() < 0.5 else up)(fleet, name, now)
        endpoint = random.choice(fleet.endpoints)
        if endpoint.in_flight:
            outcome = random.choice(["ok", "failed", "ignored"])
            endpoint.in_flight -= 1
            fleet.ended(endpoint, outcome, now)  # type: ignore[arg-type]
            answer(fleet, endpoint.region, run_ms=random.uniform(1, 50), wait_ms=random.choice([0, 9]), now=now)
    return fleet, now


@given(histories(), FEATURES)
def test_whatever_happened_nothing_leaves_its_regions(lived: tuple[Fleet, float], asked: Features) -> None:
    fleet, now = lived
    decision = forward(asked, fleet, now)
    unknown = fleet.config.residency and not asked.country
    rules = [
        fleet.config.residency.get(asked.country, (next(iter(fleet.config.regions)),) if unknown else NAMES),
        fleet.config.tenants[asked.tenant].regions if asked.tenant in fleet.config.tenants else NAMES,
    ]
    permitted = set(NAMES).intersection(*rules)
    assert set(order(decision)) <= permitted
    assert set(order(decision)) | set(decision.refused) == set(NAMES)
    assert not set(order(decision)) & set(decision.refused)
    assert decision.restricted or permitted == set(NAMES)
    for option in decision.options:
        state = fleet.regions[option.region]
        assert state.in_flight < state.config.in_flight_max
        assert any(e.available and e.serves(asked.pair, asked.tier) for e in state.endpoints)


@given(histories(), FEATURES)
def test_to_ask_changes_nothing_and_a_view_answers_as_the_fleet_does(
    lived: tuple[Fleet, float], asked: Features
) -> None:
    fleet, now = lived
    first = forward(asked, fleet, now)
    shown = msgspec.json.decode(msgspec.json.encode(view(fleet, now)), type=FleetView)
    again = forward(asked, restored(shown, 5.0), 5.0)
    assert forward(asked, fleet, now) == first
    assert (order(again), again.why, again.home, again.refused) == (order(first), first.why, first.home, first.refused)
    for one, other in zip(first.options, again.options, strict=True):
        assert other.expected_ms == pytest.approx(one.expected_ms)


def test_a_view_holds_no_keys() -> None:
    config = RoutingConfig(regions={"eu": Region(edges=("ws://a/",))}, tenants={"acme": Tenant(keys=("sha256:ab",))})
    assert b"sha256" not in msgspec.json.encode(view(Fleet(config), 0.0))
