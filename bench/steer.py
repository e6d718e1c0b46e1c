"""Case steer: how many clients end up in the region that is truly fastest for them, and what one decision costs.

A simulated world with real cities: clients in networks of one city each, five regions, true round trips that distance
explains only in part (cables, detours, contracts), a GeoIP database that is wrong for a share of the networks, clients
that measure with noise, some that lie, and paths that change under old reports. The proxy's `steer` and `ProbeTable`
decide. `steered_share`: a client takes the fastest of the addresses it was told by its own probe, as the SDK does.
`ranked_share`: what the ranking alone would have given it. Right means within TIE of the best true round trip: nobody
can tell those apart.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import msgspec

from bench.report import Measure, Note, write_result
from proxy.core.distance import NEAREST_MS, great_circle_km
from proxy.core.probes import Network, ProbeLimits, ProbeTable
from proxy.core.steer import Client, Steered, Target, shortlist, steer

ADDRESSES_MAX = 3  # as a proxy answers, and a client probes
TIE = 1.05
TIE_MS = 2.0
SHARE_FLOOR, SHARE_TARGET = 0.97, 0.99
RANKED_FLOOR, RANKED_TARGET = 0.9, 0.97
DECISION_FLOOR_US, DECISION_TARGET_US = 40.0, 20.0
# Latitude, longitude, weight. Not population: where clients of a service are.
CITIES: tuple[tuple[float, float, float], ...] = (
    (52.5, 13.4, 5), (48.9, 2.4, 5), (51.5, -0.1, 6), (40.4, -3.7, 3), (41.9, 12.5, 3), (52.2, 21.0, 3),
    (59.3, 18.1, 2), (50.5, 30.5, 2), (55.8, 37.6, 3), (41.0, 29.0, 3), (30.0, 31.2, 2), (6.5, 3.4, 2),
    (-1.3, 36.8, 1), (-26.2, 28.0, 2), (25.2, 55.3, 2), (19.1, 72.9, 4), (12.9, 77.6, 4), (28.6, 77.2, 3),
    (23.8, 90.4, 2), (13.8, 100.5, 2), (1.4, 103.8, 3), (-6.2, 106.8, 3), (14.6, 121.0, 2), (22.3, 114.2, 3),
    (25.0, 121.5, 2), (37.6, 127.0, 4), (35.7, 139.7, 6), (-33.9, 151.2, 2), (-37.8, 145.0, 2), (-36.8, 174.8, 1),
    (40.7, -74.0, 6), (41.9, -87.6, 4), (33.7, -84.4, 3), (29.8, -95.4, 3), (34.1, -118.2, 5), (47.6, -122.3, 3),
    (43.7, -79.4, 3), (19.4, -99.1, 3), (4.7, -74.1, 2), (-12.0, -77.0, 1), (-23.5, -46.6, 5), (-34.6, -58.4, 2),
    (-33.4, -70.7, 1),
)  # fmt: skip
REGIONS = {
    "frankfurt": (50.1, 8.7),
    "virginia": (38.9, -77.5),
    "oregon": (45.8, -119.7),
    "singapore": (1.3, 103.8),
    "saopaulo": (-23.5, -46.6),
}


class World(msgspec.Struct, frozen=True, kw_only=True):
    """How bad it is. Shares are of networks or clients, spreads are standard deviations of a logarithm."""

    networks: int = 2_000
    clients: int = 60_000
    tenants: int = 20
    hours: float = 6.0
    inflation: float = 1.7  # of a round trip over fibre laid straight
    city_spread: float = 0.25  # of the inflation between a city and a region
    network_spread: float = 0.12  # and of one network beside its city
    geoip_other_city: float = 0.12  # networks that the database puts into another city of the same continent or so
    geoip_anywhere: float = 0.04
    geoip_unknown: float = 0.02
    noise_ms: float = 3.0  # mean of what waiting adds to a probe
    reporters: float = 0.7  # clients that stay long enough to ask again, with their measurements
    liars: float = 0.02
    path_changes: float = 0.1  # networks whose round trips are drawn anew while we look


class Place(msgspec.Struct):
    """One network: where it is said to be, and what is true."""

    network: Network
    said: tuple[float, float] | None
    city: int
    rtts_ms: dict[str, float]
    changes_at: float
    tenants: list[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=World().clients)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    world = World(clients=options.clients)
    shares = simulate(world, random.Random(options.seed))
    decision_us = time_decision(random.Random(options.seed))
    measures = (
        Measure("steered_share", shares.steered, "", SHARE_FLOOR, SHARE_TARGET, "higher"),
        Measure("ranked_share", shares.ranked, "", RANKED_FLOOR, RANKED_TARGET, "higher"),
        Measure("decision_us", decision_us, "us", DECISION_FLOOR_US, DECISION_TARGET_US, "lower"),
    )
    notes: dict[str, Note] = {
        "seed": options.seed,
        "distance_alone_share": round(shares.distance, 4),
        "steered_extra_ms_mean": round(shares.extra_ms, 3),
        **{name: getattr(world, name) for name in world.__struct_fields__},
    }
    return write_result("steer", measures, notes)


class Shares(msgspec.Struct):
    """Shares of the second half of all clients: the first half fills the table."""

    steered: float
    ranked: float
    distance: float
    extra_ms: float


def simulate(world: World, rng: random.Random) -> Shares:
    """Clients in the order of their coming, each steered, measuring and reporting."""
    probes, nothing = ProbeTable(ProbeLimits()), ProbeTable(ProbeLimits())
    places = made_places(world, rng)
    popularity = [1.0 / (rank + 10) for rank in range(len(places))]
    targets = [Target(name, (f"wss://{name}.example/link",), location) for name, location in REGIONS.items()]
    right = {"steered": 0, "ranked": 0, "distance": 0}
    counted, extra_ms = 0, 0.0
    for number, place in enumerate(rng.choices(places, popularity, k=world.clients)):
        now = number / world.clients * world.hours * 3600.0
        if now >= place.changes_at:
            place.rtts_ms, place.changes_at = _true_rtts(place.city, world, rng), float("inf")
        client = Client(rng.choice(place.tenants), place.network, place.said)
        ranked = _ranked(client, targets, probes, now)
        measured = {
            steered.target.name: place.rtts_ms[steered.target.name] + _noise_ms(world, rng)
            for steered in shortlist(ranked, ADDRESSES_MAX)
        }
        chosen = min(measured, key=measured.__getitem__)
        if rng.random() < world.liars:
            measured = {name: rng.uniform(1.0, 300.0) for name in measured}
        if rng.random() < world.reporters:
            probes.report(place.network, rng.getrandbits(8), client.tenant, measured, now + 40.0)
        if number >= world.clients // 2:
            counted += 1
            best_ms = min(place.rtts_ms.values())
            extra_ms += place.rtts_ms[chosen] - best_ms
            by_distance = _ranked(client, targets, nothing, now)[0].target.name
            picks = {"steered": chosen, "ranked": ranked[0].target.name, "distance": by_distance}
            for how, name in picks.items():
                right[how] += place.rtts_ms[name] <= max(best_ms * TIE, best_ms + TIE_MS)
    return Shares(
        right["steered"] / counted, right["ranked"] / counted, right["distance"] / counted, extra_ms / counted
    )


def time_decision(rng: random.Random) -> float:
    """Microseconds of one `steer` among five regions with a full table's reports, the best of several rounds."""
    probes = ProbeTable(ProbeLimits())
    client = Client("tenant-0", (4, 1), (48.9, 2.4))
    targets = [Target(name, (f"wss://{name}.example/link",), location) for name, location in REGIONS.items()]
    for reporter in range(12):
        probes.report((4, 1), reporter, f"tenant-{reporter % 4}", {name: rng.uniform(5, 200) for name in REGIONS}, 0.0)
    rounds = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(200):
            _ranked(client, targets, probes, 1.0)
        rounds.append((time.perf_counter() - began) / 200)
    return min(rounds) * 1e6


def _ranked(client: Client, targets: list[Target], probes: ProbeTable, now: float) -> list[Steered]:
    return steer(client, targets, probes, default_region="frankfurt", now=now)


def made_places(world: World, rng: random.Random) -> list[Place]:
    """Networks with their truth and what GeoIP says of them."""
    weights = [weight for _, _, weight in CITIES]
    names = [f"tenant-{number}" for number in range(world.tenants)]
    places = []
    for number, city in enumerate(rng.choices(range(len(CITIES)), weights, k=world.networks)):
        changes = rng.random() < world.path_changes
        places.append(
            Place(
                (4, number),
                _said(city, world, rng),
                city,
                _true_rtts(city, world, rng),
                rng.uniform(0.2, 0.8) * world.hours * 3600.0 if changes else float("inf"),
                rng.sample(names, rng.choice((1, 1, 2, 3, 5))),
            )
        )
    return places


def _said(city: int, world: World, rng: random.Random) -> tuple[float, float] | None:
    at = CITIES[city][:2]
    chance = rng.random()
    if chance < world.geoip_unknown:
        return None
    if chance < world.geoip_unknown + world.geoip_anywhere:
        return rng.choice(CITIES)[:2]
    if chance < world.geoip_unknown + world.geoip_anywhere + world.geoip_other_city:
        near = sorted(CITIES, key=lambda other: great_circle_km(at, other[:2]))
        return rng.choice(near[1:8])[:2]
    return at


def _true_rtts(city: int, world: World, rng: random.Random) -> dict[str, float]:
    """Round trips of one network: a city's paths are the same for all its networks, what a network adds is its own."""
    paths = random.Random(city)
    access_ms = rng.uniform(1.0, 12.0)
    rtts_ms = {}
    for name, location in REGIONS.items():
        straight_ms = great_circle_km(CITIES[city][:2], location) * 2.0 / 200.0
        factor = world.inflation * paths.lognormvariate(0.0, world.city_spread)
        factor *= rng.lognormvariate(0.0, world.network_spread)
        rtts_ms[name] = access_ms + NEAREST_MS + straight_ms * max(1.05, factor)
    return rtts_ms


def _noise_ms(world: World, rng: random.Random) -> float:
    """The SDK takes the smaller of two."""
    return min(rng.expovariate(1.0 / world.noise_ms), rng.expovariate(1.0 / world.noise_ms))
