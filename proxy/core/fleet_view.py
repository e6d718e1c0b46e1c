"""A fleet as plain values: what the admin port shows, and a fleet made of it again.

Decides: what of a fleet a decision depends on. Must not know: links, files, how regions are ordered.
Invariants: `forward` on the restored fleet gives what it gives on the one that was viewed, at the same moment; no key
is in a view.
"""

from __future__ import annotations

import msgspec

from nearsay.traffic.service_time import ServiceTime
from nearsay.wire.messages import State
from proxy.core.distance import prior_rtt_ms
from proxy.core.endpoint import Endpoint
from proxy.core.fleet import Fleet, Kind, RegionState
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool
from proxy.core.routing_config import Region, RoutingConfig


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    """One edge."""

    name: str
    up: bool
    state: State
    in_flight: int
    rtt_s: float | None
    edge_pairs: tuple[str, ...] = ()
    origin_pairs: tuple[str, ...] = ()
    origin_ready: tuple[str, ...] = ()


class TimesView(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests of one kind take in a region. `age_s`: of the last answer."""

    run_s: float
    waited_s: float
    depth: float
    age_s: float


class RegionView(msgspec.Struct, frozen=True, kw_only=True):
    """One region."""

    endpoints: tuple[EndpointView, ...] = ()
    well: bool = True
    available: bool = False
    tried: bool = False
    failures: int = 0
    well_for_s: float = 0.0
    times: dict[Kind, TimesView] = {}


class HomeView(msgspec.Struct, frozen=True):
    """Where requests of one class go while nothing is wrong: the class's key, as in `Fleet.classes`, and its home."""

    pair: str
    kind: str
    priority: str
    tenant: str
    country: str
    home: str


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """All regions. `config` is the one in force, without its keys."""

    label: str
    config: RoutingConfig
    regions: dict[str, RegionView]
    homes: tuple[HomeView, ...] = ()
    since_probe: int = 0


def view(fleet: Fleet, now: float) -> FleetView:
    """The fleet as it is now."""
    tenants = {name: msgspec.structs.replace(tenant, keys=()) for name, tenant in fleet.config.tenants.items()}
    return FleetView(
        label=fleet.label,
        config=msgspec.structs.replace(fleet.config, tenants=tenants),
        regions={name: _region_view(region, now) for name, region in fleet.regions.items()},
        homes=tuple(HomeView(*key, known.home) for key, known in fleet.classes().items()),
        since_probe=fleet.since_probe,
    )


def assumed(config: RoutingConfig, label: str, pair: str, here: tuple[float, float] | None) -> FleetView:
    """A fleet that nobody has seen: every edge up, idle and serving `pair`, as far from `here` as its region is."""

    def edge(name: str, region: Region) -> EndpointView:
        away_s = None if here is None or region.location is None else prior_rtt_ms(here, region.location) / 1e3
        return EndpointView(
            name=name,
            up=True,
            state="ready",
            in_flight=0,
            rtt_s=away_s,
            edge_pairs=(pair,),
            origin_pairs=(pair,),
            origin_ready=(pair,),
        )

    regions = {
        name: RegionView(endpoints=tuple(edge(url, region) for url in region.edges), available=True)
        for name, region in config.regions.items()
    }
    return FleetView(label=label, config=config, regions=regions)


def restored(shown: FleetView, now: float, config: RoutingConfig | None = None) -> Fleet:
    """A fleet that decides as the viewed one did, or as it would by another config."""
    config = config or shown.config
    fleet = Fleet(config, shown.label)
    edges = [_endpoint(edge, now) for region in shown.regions.values() for edge in region.endpoints]
    fleet.apply(config, shown.label, edges)
    for name, region in fleet.regions.items():
        if name in shown.regions:
            _restore(region, shown.regions[name], now)
    for home in shown.homes:
        fleet.remember(home.home, (home.pair, home.kind, home.priority, home.tenant, home.country))
    fleet.since_probe = shown.since_probe
    return fleet


def _region_view(region: RegionState, now: float) -> RegionView:
    standing = region.standing
    return RegionView(
        endpoints=tuple(_endpoint_view(endpoint) for endpoint in region.endpoints),
        well=standing.well,
        available=standing.available,
        tried=standing.tried,
        failures=standing.failures,
        well_for_s=now - standing.well_since,
        times={kind: _times_view(times, now) for kind, times in region.times.items() if times.observed_at is not None},
    )


def _restore(region: RegionState, shown: RegionView, now: float) -> None:
    standing = region.standing
    standing.well, standing.available, standing.tried = shown.well, shown.available, shown.tried
    standing.failures, standing.well_since = shown.failures, now - shown.well_for_s
    for kind, times in shown.times.items():
        own = region.times[kind]
        own.observed_at = now - times.age_s
        own.run_s, own.waited_s, own.depth = times.run_s, times.waited_s, times.depth


def _endpoint_view(endpoint: Endpoint) -> EndpointView:
    return EndpointView(
        name=endpoint.name,
        up=endpoint.up,
        state=endpoint.state,
        in_flight=endpoint.in_flight,
        rtt_s=endpoint.rtt_s,
        edge_pairs=tuple(sorted(endpoint.edge_pairs)),
        origin_pairs=tuple(sorted(endpoint.origin_pairs)),
        origin_ready=tuple(sorted(endpoint.origin_ready)),
    )


def _endpoint(shown: EndpointView, now: float) -> Endpoint:
    made = Endpoint(shown.name, Pool(AttemptLimits(), now), now)
    made.up, made.state, made.in_flight = shown.up, shown.state, shown.in_flight
    made.rtt_s = shown.rtt_s
    made.edge_pairs, made.origin_pairs = frozenset(shown.edge_pairs), frozenset(shown.origin_pairs)
    made.origin_ready = frozenset(shown.origin_ready)
    return made


def _times_view(times: ServiceTime, now: float) -> TimesView:
    return TimesView(
        run_s=times.run_s,
        waited_s=times.waited_s,
        depth=times.depth,
        age_s=0.0 if times.observed_at is None else now - times.observed_at,
    )
