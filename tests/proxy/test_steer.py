"""Where clients are sent: order, residency, addresses, unknown places, and the simulated world of the benchmark."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.steer import REGIONS, World, simulate
from proxy.core.distance import great_circle_km, prior_rtt_ms
from proxy.core.probes import ProbeLimits, ProbeTable
from proxy.core.steer import Client, Steered, Target, shortlist, steer

PARIS, NEW_YORK, SYDNEY = (48.9, 2.4), (40.7, -74.0), (-33.9, 151.2)
EU = Target("eu", ("wss://eu/link",), (50.1, 8.7))
US = Target("us", ("wss://us/link",), (38.9, -77.5))
ASIA = Target("asia", ("wss://asia/link",), (1.3, 103.8))
FLEET = (US, ASIA, EU)


def names(
    client: Client, fleet: tuple[Target, ...] = FLEET, probes: ProbeTable | None = None, **how: object
) -> list[str]:
    options = {"default_region": "us", "now": 0.0} | how
    ranked = steer(client, fleet, probes or ProbeTable(ProbeLimits()), **options)  # type: ignore[arg-type]
    return [steered.target.name for steered in ranked]


def test_the_nearest_comes_first() -> None:
    assert names(Client("t", None, PARIS)) == ["eu", "us", "asia"]
    assert names(Client("t", None, NEW_YORK)) == ["us", "eu", "asia"]
    assert names(Client("t", None, SYDNEY))[0] == "asia"


def test_measured_beats_distance() -> None:
    probes = ProbeTable(ProbeLimits())
    probes.report((4, 7), 1, "t", {"eu": 180.0, "us": 20.0}, 0.0)
    assert names(Client("t", (4, 7), PARIS), probes=probes) == ["us", "eu", "asia"]
    assert names(Client("t", (4, 8), PARIS), probes=probes)[0] == "eu", "another network"
    assert names(Client("t", (4, 7), None), probes=probes) == ["us", "eu", "asia"]


def test_an_unknown_place_gets_the_default_region_then_the_operators_order() -> None:
    assert names(Client("t"), default_region="eu") == ["eu", "us", "asia"]
    bare = tuple(Target(name, ("wss://x/link",)) for name in ("a", "b"))
    assert names(Client("t", None, PARIS), bare, default_region="b") == ["b", "a"]


def test_addresses_and_readiness_exclude() -> None:
    client = Client("t", None, PARIS)
    assert names(client, (US, Target("eu", (), (50.1, 8.7)))) == ["us"]
    assert names(client, (US, Target("eu", ("wss://eu/link",), (50.1, 8.7), ready=False))) == ["us"]
    assert names(client, ()) == []


def test_every_region_gets_its_turn_to_be_measured() -> None:
    def steered(name: str, why: str) -> Steered:
        return Steered(Target(name, ("wss://x/link",)), 1.0, why)  # type: ignore[arg-type]

    ranked = [steered("a", "measured"), steered("b", "measured"), steered("c", "measured"), steered("d", "distance")]
    assert [one.target.name for one in shortlist(ranked, 3)] == ["a", "b", "d"]
    assert [one.target.name for one in shortlist(ranked, 1)] == ["a"]
    assert [one.target.name for one in shortlist(ranked[:3], 2)] == ["a", "b"]
    fresh = [steered("a", "distance"), *ranked[1:]]
    assert [one.target.name for one in shortlist(fresh, 2)] == ["a", "b"], "there is one to measure already"
    assert shortlist([], 3) == []


def test_distances_are_those_of_the_globe() -> None:
    assert great_circle_km(PARIS, NEW_YORK) == pytest.approx(5840, abs=30)
    assert great_circle_km(PARIS, PARIS) == 0.0
    assert great_circle_km((0, 0), (0, 180)) == pytest.approx(20_015, abs=5)
    assert 80 < prior_rtt_ms(PARIS, NEW_YORK) < 120


places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(places, places)
def test_distance_is_symmetric_and_bounded(one: tuple[float, float], other: tuple[float, float]) -> None:
    there, back = great_circle_km(one, other), great_circle_km(other, one)
    assert 0.0 <= there <= 20_016 and there == pytest.approx(back, abs=1e-6)


@given(
    st.lists(st.sampled_from(sorted(REGIONS)), unique=True, min_size=1),
    st.none() | places,
    st.dictionaries(st.sampled_from(sorted(REGIONS)), st.floats(1, 300)),
)
def test_all_that_may_be_told_are_told_once(
    regions: list[str], place: tuple[float, float] | None, measured: dict[str, float]
) -> None:
    probes = ProbeTable(ProbeLimits())
    probes.report((4, 1), 1, "t", measured, 0.0)
    fleet = tuple(Target(name, ("wss://x/link",), REGIONS[name]) for name in regions)
    assert sorted(names(Client("t", (4, 1), place), fleet, probes)) == sorted(regions)


def test_most_clients_of_a_simulated_world_end_up_in_their_fastest_region() -> None:
    world = World(networks=300, clients=9_000)
    shares = simulate(world, random.Random(7))
    assert shares.steered >= 0.98
    assert shares.ranked >= shares.distance + 0.03, "what clients measured corrects what GeoIP says"


def test_liars_harm_themselves() -> None:
    honest = simulate(World(networks=300, clients=9_000, liars=0.0), random.Random(7))
    lied_to = simulate(World(networks=300, clients=9_000, liars=0.1), random.Random(7))
    assert lied_to.ranked >= honest.ranked - 0.04 and lied_to.steered >= 0.97
