"""Where to send a client that will ask edges directly: regions in the order of their expected round trip.

Decides: which regions a client is told of, and which first.
Must not know: requests, load (an edge that is busy says so, and the client comes back to the proxy), grants, clocks.
Invariants: a region without an address for clients or without an edge that is up is never told (one that residency
forbids isn't even given here); what isn't known about a place makes the default region first, never an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from proxy.core.probes import Network, ProbeTable

EARTH_KM = 6371.0
# Light in fibre does 200 km a millisecond one way. Cables follow coasts and roads, and routes follow contracts: round
# trips on the internet take two to three times what light would in a vacuum (Bozkurt et al., "Why Is the Internet So
# Slow?!", PAM 2017), which is 1.3 to 2 times that of fibre laid straight, and begin at some 2 ms.
MS_PER_KM = 2.0 / 200.0 * 1.7
NEAREST_MS = 2.0

Why = Literal["measured", "distance", "default", "listed"]


class Client(msgspec.Struct, frozen=True):
    """Who is to be steered."""

    tenant: str
    network: Network | None = None  # None = the address isn't known
    location: tuple[float, float] | None = None  # latitude, longitude in degrees


class Target(msgspec.Struct, frozen=True):
    """A region as far as steering goes. `ready`: it has an edge now that serves what the client wants."""

    name: str
    addresses: tuple[str, ...]
    location: tuple[float, float] | None = None
    ready: bool = True


class Steered(msgspec.Struct, frozen=True):
    """One region of the answer. `expected_ms` is None where nothing is known but the operator's order."""

    target: Target
    expected_ms: float | None
    why: Why


def steer(
    client: Client,
    fleet: Sequence[Target],
    probes: ProbeTable,
    *,
    default_region: str,
    now: float,
) -> list[Steered]:
    """Regions for a client, best first. `fleet`: those that its texts may go to."""
    found = [
        _expected(client, target, probes, default_region, now) for target in fleet if target.addresses and target.ready
    ]
    known = [steered for steered in found if steered.expected_ms is not None]
    # With the place unknown distances say nothing; a measured region still beats one that nobody has seen.
    rest = sorted((steered for steered in found if steered.expected_ms is None), key=lambda one: one.why != "default")
    return [*sorted(known, key=lambda one: one.expected_ms or 0.0), *rest]


def shortlist(ranked: Sequence[Steered], count: int) -> list[Steered]:
    """The regions that a client is told of, which it then measures: the best, and last the best that nobody measured.

    Where GeoIP is wrong about a network, the fastest region may be far down; so each gets its turn to be measured.
    """
    told = list(ranked[:count])
    if len(ranked) > count > 1 and all(steered.why == "measured" for steered in told):
        told[-1] = next((steered for steered in ranked[count:] if steered.why != "measured"), told[-1])
    return told


def _expected(client: Client, target: Target, probes: ProbeTable, default_region: str, now: float) -> Steered:
    prior_ms = None
    if client.location is not None and target.location is not None:
        prior_ms = prior_rtt_ms(client.location, target.location)
    expected_ms = prior_ms
    if client.network is not None:
        expected_ms = probes.estimate(client.network, target.name, client.tenant, prior_ms, now)
    if expected_ms is None:
        return Steered(target, None, "default" if target.name == default_region else "listed")
    return Steered(target, expected_ms, "distance" if expected_ms == prior_ms else "measured")


def prior_rtt_ms(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Round trip that the distance between two places lets expect."""
    return NEAREST_MS + great_circle_km(one, other) * MS_PER_KM


def great_circle_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Distance on the sphere (haversine)."""
    lat1, lon1, lat2, lon2 = map(math.radians, (*one, *other))
    a = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(a)))
