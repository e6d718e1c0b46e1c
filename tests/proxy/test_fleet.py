from __future__ import annotations

import msgspec
import pytest

from proxy.core.fleet import CLASSES_MAX, Fleet
from proxy.core.routing_config import Pair, RoutingConfig, Tenant
from tests.kit.fleets import answer, edge, features, fleet_of, region

RTTS = {"eu": 10.0, "us": 90.0, "ap": 200.0}
REGIONS = {name: region(name) for name in RTTS}


def allowed(fleet: Fleet, **fields: object) -> list[str]:
    return [state.name for state in fleet.class_of(features(**fields)).regions]


def config(**fields: object) -> RoutingConfig:
    return msgspec.convert(
        {"regions": REGIONS, **fields}, RoutingConfig, from_attributes=True
    )  # fields as they stand in a file


def test_without_rules_all_regions_may_serve_all() -> None:
    fleet = fleet_of(RTTS)
    assert allowed(fleet) == allowed(fleet, tenant="x", country="DE") == ["eu", "us", "ap"]
    assert not fleet.class_of(features()).restricted


def test_tenant_country_and_pair_must_all_allow() -> None:
    fleet = fleet_of(
        RTTS,
        config(
            tenants={"acme": Tenant(regions=("eu", "us")), "free": Tenant()},
            residency={"DE": ("eu",), "US": ("us", "ap")},
            pairs={"en-pt": Pair(regions=("ap", "eu"))},
        ),
    )
    assert allowed(fleet, country="FR") == ["eu", "us", "ap"]
    assert allowed(fleet, country="DE") == ["eu"]
    assert allowed(fleet, country="US", tenant="acme") == ["us"]
    assert allowed(fleet, country="FR", tenant="acme") == ["eu", "us"]
    assert allowed(fleet, country="US", tenant="free", pair="en-pt") == ["ap"]
    assert allowed(fleet, country="DE", pair="en-pt") == ["eu"]
    nowhere = fleet.class_of(features(country="US", tenant="acme", pair="en-pt"))
    assert nowhere.regions == () and nowhere.restricted
    assert nowhere.barred == {"ap": "tenant", "eu": "residency", "us": "pair"}
    assert not fleet.class_of(features(country="FR", pair="en-pt")).restricted, "the pair's rule is no residency"


def test_a_country_that_is_not_known_might_be_a_pinned_one() -> None:
    rules = {"residency": {"DE": ("eu",)}}
    assert allowed(fleet_of(RTTS, config(**rules))) == ["eu"], "the first region is the default one"
    assert allowed(fleet_of(RTTS, config(**rules, default_region="us"))) == ["us"]


def test_requests_of_one_class_are_remembered_together_and_only_so_many() -> None:
    fleet = fleet_of(RTTS, config(residency={"DE": ("eu",)}))
    assert fleet.class_of(features(country="FR")) is fleet.class_of(features(country="IT", tenant="who"))
    assert fleet.class_of(features(country="FR")) is not fleet.class_of(features(country="FR", priority="batch"))
    for number in range(2 * CLASSES_MAX):
        fleet.class_of(features(pair=f"en-{number}"))
        assert len(fleet.classes()) <= CLASSES_MAX


def test_a_reload_keeps_what_was_measured_and_where_requests_go() -> None:
    fleet = fleet_of(RTTS)
    answer(fleet, "us", run_ms=20.0)
    fleet.took(features(), "us", home="us", probe=False)
    fleet.took(features(priority="batch"), "ap", home="ap", probe=False)
    us = fleet.regions["us"]
    new = config()
    new = msgspec.structs.replace(new, regions={name: REGIONS[name] for name in ("us", "eu")})
    fleet.apply(new, "v2", [edge("ws://us-0/link"), edge("ws://eu-0/link")])
    assert fleet.label == "v2" and list(fleet.regions) == ["us", "eu"]
    assert fleet.regions["us"] is us and us.times["edge"].run_s == pytest.approx(0.02)
    assert fleet.class_of(features()).home == "us"
    assert fleet.class_of(features(priority="batch")).home == "", "its region is gone"


def test_a_reload_without_a_tenant_forgets_its_classes() -> None:
    fleet = fleet_of(RTTS, config(tenants={"acme": Tenant(regions=("eu",))}))
    fleet.took(features(tenant="acme"), "eu", home="eu", probe=False)
    fleet.apply(config(), "v2", fleet.endpoints)
    assert allowed(fleet, tenant="acme") == ["eu", "us", "ap"]


def test_answers_teach_the_run_and_the_waiting_of_their_kind() -> None:
    fleet = fleet_of(RTTS)
    answer(fleet, "eu", run_ms=12.0, wait_ms=30.0, depth=5)
    edge_times, origin_times = (fleet.regions["eu"].times[kind] for kind in ("edge", "origin"))
    assert edge_times.run_s == pytest.approx(0.012)
    assert edge_times.wait_s(5, 0.0) == pytest.approx(0.03)
    assert origin_times.observed_at is None
    fleet.answered("eu", features(tier="refine"), accounted_ms=50, stages_ms={"origin_queue": 8.0}, depth=0, now=0.0)
    assert origin_times.run_s == pytest.approx(0.042)
    fleet.answered("gone", features(), accounted_ms=1.0, stages_ms={}, depth=0, now=0.0)


def test_a_region_is_as_near_as_its_best_link_that_is_up() -> None:
    fleet = fleet_of({"eu": None}, RoutingConfig(regions={"eu": region("eu", 3)}))
    eu = fleet.regions["eu"]
    assert eu.rtt_s is None
    for endpoint, rtt_s in zip(eu.endpoints, (0.03, 0.01, 0.02), strict=True):
        endpoint.rtt_s = rtt_s
    assert eu.rtt_s == 0.01
    eu.endpoints[1].up = False
    assert eu.rtt_s == 0.02
    for endpoint in eu.endpoints:
        endpoint.up = False
    assert eu.rtt_s == 0.01, "what is known of it while it is away"
