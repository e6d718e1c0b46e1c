"""`GET /v1/route`: which edges a client may ask directly, the nearest first, and the grant that they will want to see.

The client's own measurements come with its next request (`probes=eu:12.5,us:90`): they order answers to its network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, get_args
from urllib.parse import urlsplit, urlunsplit

import orjson

from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.grant import GRANT_S, GrantKey
from nearsay.wire.hops import Address
from nearsay.wire.messages import Tier
from proxy.core.direct import DirectLimits, granted
from proxy.core.probes import ProbeTable, network_of
from proxy.core.routing_config import Tenant
from proxy.core.steer import Client, Steered, Target, shortlist, steer
from proxy.location import Place

PAIR_CHARS_MAX = 65
PROBES_MAX = 16  # in one request
_PAIR = re.compile(r"[\x21-\x7e]+-[\x21-\x7e]+")
_PROBE = re.compile(r"([^:,]+):(\d{1,5}(?:\.\d{1,6})?)")


class SteerFleet(Protocol):
    """What steering asks of the proxy's regions and tenants."""

    @property
    def default_region(self) -> str: ...
    def targets(self, pair: str, tier: Tier, tenant: str, country: str) -> Sequence[Target]:
        """The regions that such a request may go to, whatever their state."""

    def edges(self, region: str) -> int:
        """How many edges a region has."""

    def tenant(self, name: str) -> Tenant:
        """A tenant's limits; without any, a plain Tenant."""


class RouteDoor:
    """Single owner of the table of probes."""

    def __init__(
        self,
        fleet: SteerFleet,
        limits: DirectLimits,
        probes: ProbeTable,
        key: GrantKey | None,
        *,
        metrics: Metrics,
        clock: Clock,
        wall: Clock,
    ) -> None:
        """`key`: None = no grants are given, so that clients stay with the proxy. `wall`: seconds since the epoch."""
        self._fleet = fleet
        self._limits = limits
        self._probes = probes
        self._key = key
        self._metrics = metrics
        self._clock = clock
        self._wall = wall

    def answer(
        self, query: Mapping[str, str], tenant: str, address: Address | None, place: Place, request_id: str
    ) -> bytes:
        """The JSON answer. Raises InvalidRequest (invalid_request) for a query that isn't understood."""
        pair, tier, measured = _pair(query), _tier(query), _measured(query)
        targets = self._fleet.targets(pair, tier, tenant, place.country)
        now = self._clock()
        network = network_of(address) if address is not None else None
        if network is not None and measured:
            names = {target.name for target in targets}
            rtts_ms = {region: rtt_ms for region, rtt_ms in measured.items() if region in names}
            # A number that stands for this client here and now, and for nobody anywhere else: no address is kept.
            taken = self._probes.report(network, hash((tenant, address)), tenant, rtts_ms, now)
            self._metrics.count("probes", outcome="taken" if taken == len(measured) else "dropped")
        client = Client(tenant, network, place.location)
        ranked = steer(client, targets, self._probes, default_region=self._fleet.default_region, now=now)
        told = shortlist(ranked, self._limits.addresses_max)
        self._metrics.count("steered", region=told[0].target.name if told else "", why=told[0].why if told else "none")
        return orjson.dumps(
            {
                "regions": [_region(steered) for steered in told],
                "grant": self._grant(tenant, told, targets),
                "grant_s": GRANT_S,
                "request_id": request_id,
            }
        )

    def _grant(self, tenant: str, told: Sequence[Steered], targets: Sequence[Target]) -> str:
        if self._key is None or not told:
            return ""
        regions = [steered.target.name for steered in told]
        # Other clients of the tenant may be told of the other regions.
        edges = sum(self._fleet.edges(target.name) for target in targets if target.addresses)
        return self._key.sign(granted(tenant, self._fleet.tenant(tenant), regions, edges, self._limits, self._wall()))


def probe_url(link_url: str) -> str:
    """`wss://eu.example/link` to `https://eu.example/probe`."""
    parts = urlsplit(link_url)
    path = parts.path.removesuffix("/link") + "/probe"
    return urlunsplit(("https" if parts.scheme == "wss" else "http", parts.netloc, path, "", ""))


def _region(steered: Steered) -> dict[str, object]:
    return {
        "region": steered.target.name,
        "addresses": [{"link": url, "probe": probe_url(url)} for url in steered.target.addresses],
        "expected_ms": None if steered.expected_ms is None else round(steered.expected_ms, 1),
        "why": steered.why,
    }


def _pair(query: Mapping[str, str]) -> str:
    pair = query.get("pair", "")
    if len(pair) > PAIR_CHARS_MAX or not _PAIR.fullmatch(pair):
        raise InvalidRequest("pair: source and target are needed, such as pair=en-de")
    return pair


def _tier(query: Mapping[str, str]) -> Tier:
    tier = query.get("tier", "auto")
    for known in get_args(Tier):
        if tier == known:
            return known  # type: ignore[no-any-return]
    raise InvalidRequest(f"tier: one of {', '.join(get_args(Tier))}")


def _measured(query: Mapping[str, str]) -> dict[str, float]:
    """Round trips in ms by region."""
    text = query.get("probes", "")
    entries = text.split(",") if text else []
    found = [_PROBE.fullmatch(entry) for entry in entries]
    if len(entries) > PROBES_MAX or not all(found):
        raise InvalidRequest(f"probes: at most {PROBES_MAX} of region:milliseconds, such as probes=eu:12.5,us:90")
    return {match[1]: float(match[2]) for match in found if match}
