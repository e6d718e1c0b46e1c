"""The simulated world of `bench.regions`: what `forward` must do in it, and that the judge tells right from wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import regions
from bench.regions import NEAREST, World, crowded, lost_ms, share, troubled
from proxy.core.fleet import Features, Fleet
from proxy.core.routing import Decision, forward

RATE_PER_S = 30.0


@pytest.fixture(scope="module")
def world() -> World:
    return troubled(seed=7, rate_per_s=RATE_PER_S)


def test_no_request_fails_and_nothing_flaps(world: World) -> None:
    assert world.failed == 0
    assert world.turns == [f"{NEAREST} left", f"{NEAREST} returned"]
    assert world.homes == ["eu", "us", "eu", "us", "eu"], "slow and back, far and back; to be gone moves no home"
    assert world.flaps == 0


def test_requests_go_where_they_are_answered_first(world: World) -> None:
    assert share([world]) >= regions.SHARE_FLOOR
    assert share([world], "calm") == share([world], "gone") == 1.0


def test_requests_spill_and_return(world: World) -> None:
    assert world.went["gone", "us"] == world.sent["gone"]
    assert world.went["after_gone", "us"] < 10.0 * RATE_PER_S
    assert world.went["after_gone", "eu"] > 0.9 * world.sent["after_gone"]


def test_a_crowd_is_shared_at_little_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "TROUBLE_S", 15.0)
    world = crowded(seed=7)
    went = Counter({region: count for (phase, region), count in world.went.items() if phase == "crowd"})
    assert went["eu"] > went["us"] > 0.1 * went["eu"]
    assert lost_ms([world], "crowd") < regions.LOST_FLOOR_MS
    assert share([world], "after_crowd") > 0.99
    assert world.failed == 0 and world.turns == []


def test_the_judge_sees_a_wrong_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def always_the_second(features: Features, fleet: Fleet, now: float) -> Decision:
        decision = forward(features, fleet, now)
        return Decision(decision.options[1:], decision.why, decision.home, decision.refused, decision.restricted)

    monkeypatch.setattr(regions, "forward", always_the_second)
    world = World(seed=1, rate_per_s=RATE_PER_S)
    world.spend("calm", 10.0)
    assert share([world]) == 0.0
    assert lost_ms([world], "calm") > 50.0


def test_the_same_seed_gives_the_same_world(world: World) -> None:
    again = World(seed=7, rate_per_s=RATE_PER_S)
    again.spend("calm", regions.REST_S)
    assert again.sent["calm"] == world.sent["calm"] and again.lost_ms["calm"] == world.lost_ms["calm"]
