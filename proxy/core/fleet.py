"""All regions as this proxy knows them: their edges, how far away they are, how long they take, whether they stand.

Decides: which regions may serve a request at all (residency, pair rules), and what is learnt from each attempt.
Must not know: how regions are ordered (routing.py), links, messages, clocks (`now` is an argument).
Invariants: a request's regions are those that tenant, country and pair all allow, never more; the config, its label and
the regions change together; what was measured of a region outlives a reload that keeps its name; CLASSES_MAX bounds
what is remembered of kinds of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from nearsay.traffic.service_time import ServiceTime
from nearsay.wire.messages import Priority, Tier
from proxy.core.endpoint import WORK_CHARS, Endpoint, Outcome
from proxy.core.routing_config import DEFAULT_TENANT, Region, RoutingConfig
from proxy.core.standing import Standing, Turn

Kind = Literal["edge", "origin"]  # of the time a request takes, as in Endpoint
KINDS: tuple[Kind, ...] = ("edge", "origin")
ClassKey = tuple[str, str, str, str, str]  # pair, kind, priority, tenant, country; the last two where rules name them
CLASSES_MAX = 4096  # kinds of requests whose regions are remembered; beyond, all are worked out anew
TENANT = 3  # where it stands in a class's key
BASE_CHARS = 32  # a request's work that doesn't depend on its length


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request decides where it may go and goes."""

    pair: str
    tier: Tier = "auto"
    priority: Priority = "interactive"
    chars: int = 0
    tenant: str = DEFAULT_TENANT
    country: str = ""  # ISO 3166-1 alpha-2, "" = not known
    session: str = ""
    deadline_ms: float = 10_000.0

    @property
    def kind(self) -> Kind:
        """Whose time it takes."""
        return "origin" if self.tier in ("origin", "refine") else "edge"


def work(chars: int) -> float:
    """Units of work in a request: run times are measured and expected for one."""
    return (chars + BASE_CHARS) / WORK_CHARS


class RegionState:
    """One region: its config and edges, and what was measured of it."""

    def __init__(self, name: str, config: Region) -> None:
        self.name = name
        self.config = config
        self.endpoints: tuple[Endpoint, ...] = ()
        self.standing = Standing()
        self.times: dict[Kind, ServiceTime] = {kind: ServiceTime() for kind in KINDS}

    @property
    def in_flight(self) -> int:
        """Attempts of this proxy that are there now."""
        return sum(endpoint.in_flight for endpoint in self.endpoints)

    @property
    def rtt_s(self) -> float | None:
        """The best link's round trip, of those that are up if any is; None while none is known."""
        known = [(not e.available, e.rtt_s) for e in self.endpoints if e.rtt_s is not None]
        return min(known)[1] if known else None


class RequestClass:
    """Requests that may go to the same regions and prefer the same one."""

    __slots__ = ("barred", "home", "regions", "restricted")

    def __init__(self, regions: tuple[RegionState, ...], barred: dict[str, str], restricted: bool) -> None:
        self.regions = regions
        self.barred = barred  # the others, with the rule that forbids each
        self.restricted = restricted  # by residency, of the tenant or the country
        self.home = ""  # the region that they go to while nothing is wrong; "" = none has been chosen yet


class Fleet:
    """Single writer of all that routing decides by."""

    def __init__(self, config: RoutingConfig, label: str = "") -> None:
        self.config = config
        self.label = label  # version and hash, as answers carry it
        self.regions: dict[str, RegionState] = {}
        self.since_probe = 0  # requests sent since the last one that only went to measure
        self._classes: dict[ClassKey, RequestClass] = {}
        self.apply(config, label, ())

    def apply(self, config: RoutingConfig, label: str, endpoints: Iterable[Endpoint]) -> None:
        """Take over a config whole. `endpoints` are those of all its edges, in any order."""
        by_url = {endpoint.name: endpoint for endpoint in endpoints}
        regions = {}
        for name, region in config.regions.items():
            state = regions[name] = self.regions.get(name) or RegionState(name, region)
            state.config = region
            state.endpoints = tuple(by_url[url] for url in region.edges if url in by_url)
            for endpoint in state.endpoints:
                endpoint.region = name
        known = self._classes
        self.config, self.label, self.regions, self._classes = config, label, regions, {}
        for key, before in known.items():
            self.remember(before.home, key)

    def remember(self, home: str, key: ClassKey) -> None:
        """Keep where a class goes, if the config still has both."""
        if home in self.regions and (not key[TENANT] or key[TENANT] in self.config.tenants):
            self._class(key).home = home

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Edges of all regions."""
        return tuple(endpoint for region in self.regions.values() for endpoint in region.endpoints)

    def class_of(self, features: Features) -> RequestClass:
        """Where a request may go. The same object for requests of one class, until the config changes."""
        config = self.config
        tenant = features.tenant if features.tenant in config.tenants else ""
        country = features.country if features.country in config.residency or not features.country else "-"
        return self._class((features.pair, features.kind, features.priority, tenant, country))

    def classes(self) -> Mapping[ClassKey, RequestClass]:
        """Those met since the config changed."""
        return self._classes

    def see(self, endpoint: Endpoint, now: float) -> Turn | None:
        """An edge came, went or changed; what became of its region by that."""
        region = self.regions.get(endpoint.region)
        if region is None:
            return None
        return region.standing.see(any(e.available for e in region.endpoints), now)

    def took(self, features: Features, region: str, *, home: str, probe: bool) -> None:
        """A request goes to a region: decided, and not merely asked about."""
        self.class_of(features).home = home
        self.since_probe = 0 if probe else self.since_probe + 1
        standing = self.regions[region].standing
        if not standing.well:
            standing.try_once()

    def ended(self, endpoint: Endpoint, outcome: Outcome, now: float) -> Turn | None:
        """An attempt ended; what became of its region by that."""
        region = self.regions.get(endpoint.region)
        if region is None:
            return None
        ok = True if outcome == "ok" else False if outcome == "failed" else None
        return region.standing.ended(ok, now, self.config.spill.recovery_s)

    def answered(
        self,
        region: str,
        features: Features,
        *,
        accounted_ms: float,
        stages_ms: Mapping[str, float],
        depth: int,
        now: float,
    ) -> None:
        """Learn from an answer. `accounted_ms`: the edge's own time; `depth`: in flight there when it was sent."""
        if region in self.regions:
            wait_ms = stages_ms.get("edge_queue", 0.0) + stages_ms.get("origin_queue", 0.0)
            run_s = (accounted_ms - wait_ms) / 1e3 / work(features.chars)
            times = self.regions[region].times[features.kind]
            times.observe(run_s=run_s, wait_s=wait_ms / 1e3, depth=depth, now=now)

    def _class(self, key: ClassKey) -> RequestClass:
        known = self._classes.get(key)
        if known is None:
            if len(self._classes) >= CLASSES_MAX:
                self._classes.clear()
            pair, _kind, _priority, tenant, country = key
            known = self._classes[key] = self._work_out(pair, tenant, country)
        return known

    def _work_out(self, pair: str, tenant: str, country: str) -> RequestClass:
        rules = self._rules(pair, tenant, country)
        barred: dict[str, str] = {}
        for rule, allowed in rules.items():
            barred |= {name: rule for name in self.regions if name not in allowed and name not in barred}
        regions = tuple(region for name, region in self.regions.items() if name not in barred)
        return RequestClass(regions, barred, bool(rules.keys() - {"pair"}))

    def _rules(self, pair: str, tenant: str, country: str) -> dict[str, Sequence[str]]:
        """What forbids regions, by its name: each rule with the only regions that it allows."""
        config = self.config
        rules: dict[str, Sequence[str]] = {}
        if tenant and config.tenants[tenant].regions:
            rules["tenant"] = config.tenants[tenant].regions
        if country in config.residency:
            rules["residency"] = config.residency[country]
        elif config.residency and not country:
            # It might be one that is pinned: only the region for clients of unknown place is surely allowed.
            rules["unknown"] = (config.default_region or next(iter(config.regions)),)
        if pair in config.pairs and config.pairs[pair].regions:
            rules["pair"] = config.pairs[pair].regions
        return rules
