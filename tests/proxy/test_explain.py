from __future__ import annotations

from hypothesis import assume, given, settings

from proxy.core.explain import REFUSALS, explain
from proxy.core.fleet import Features, Fleet
from proxy.core.fleet_view import restored, view
from proxy.core.routing import forward
from proxy.core.routing_config import RoutingConfig
from tests.kit.fleets import answer, down, features, fleet_of, region

from .test_routing import FEATURES, histories


def test_in_words() -> None:
    fleet = fleet_of({"eu": 10.0, "us": 90.0, "ap": 200.0})
    answer(fleet, "eu", run_ms=20.0)
    down(fleet, "ap", 0.0)
    explained = explain(features(), fleet, 0.0)
    assert (explained.region, explained.why, explained.second, explained.spills_at) == ("eu", "fastest", "us", 410)
    assert explained.lines() == [
        "eu: the answer is expected back first from there  (routing test)",
        "  1. eu: 30.0 ms = 10.0 ms away + 0.0 waiting + 20.0 running; 0 in flight, 0% of its limit; cost 1",
        "  2. us: 110.0 ms = 90.0 ms away + 0.0 waiting + 20.0 running; 0 in flight, 0% of its limit; cost 1",
        "  -  ap has no edge that is up and serves this",
        "with 410 requests in flight in eu it would go to us",
    ]


def test_nowhere() -> None:
    fleet = fleet_of({"eu": 10.0}, RoutingConfig(regions={"eu": region("eu")}, residency={"DE": ("us",)}))
    explained = explain(features(country="DE"), fleet, 0.0)
    assert (explained.region, explained.second, explained.spills_at) == ("", "", None)
    assert explained.lines()[1] == f"  -  eu {REFUSALS['residency']}"


def test_the_waiting_may_be_what_makes_it_spill() -> None:
    fleet = fleet_of({"eu": 10.0, "us": 90.0})
    answer(fleet, "eu", run_ms=20.0, wait_ms=10.0, depth=9)
    assert explain(features(), fleet, 0.0).spills_at == 85  # 1 ms each, against 80 and the margin of 5


@settings(max_examples=50)
@given(histories(), FEATURES)
def test_the_load_at_which_it_spills_is_exact(lived: tuple[Fleet, float], asked: Features) -> None:
    lived_in, now = lived
    fleet = restored(view(lived_in, now), now)
    explained = explain(asked, fleet, now)
    assert explained.decision == forward(asked, fleet, now), "to ask changes nothing"
    assume(explained.spills_at is not None)
    assert explained.spills_at is not None
    [first, *_] = fleet.regions[explained.region].endpoints
    rest = fleet.regions[explained.region].in_flight - first.in_flight
    first.in_flight = explained.spills_at - rest
    assert forward(asked, fleet, now).region != explained.region
    if explained.spills_at - 1 >= rest:
        first.in_flight = explained.spills_at - 1 - rest
        assert forward(asked, fleet, now).region == explained.region
