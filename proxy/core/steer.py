"""Where to send a client that will ask edges directly: regions in the order of their expected round trip.

Decides: which regions a client is told of, and which first.
Must not know: requests, load (an edge that is busy says so, and the client comes back to the proxy), grants, clocks.
Invariants: a region without an address for clients or without an edge that is up is never told (one that residency
forbids isn't even given here); what isn't known about a place makes the default region first, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proxy.core.distance import prior_rtt_ms
from proxy.core.probes import Network, ProbeTable

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
