"""Fleets without links: regions whose edges are as near, as quick and as busy as a test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearsay.wire.messages import Hello, LoadReport
from proxy.core.endpoint import Endpoint
from proxy.core.fleet import Features, Fleet, work
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool
from proxy.core.routing_config import Region, RoutingConfig
from tests.kit.fake_edge import model

CHARS = 96  # one unit of work


def features(**fields: Any) -> Features:
    return Features(**{"pair": "en-de", "chars": CHARS, **fields})


def region(name: str, edges: int = 1, **fields: Any) -> Region:
    return Region(edges=tuple(f"ws://{name}-{number}/link" for number in range(edges)), **fields)


def edge(url: str, *, rtt_ms: float | None = 10.0, pairs: tuple[str, ...] = ("en-de",)) -> Endpoint:
    """An edge that is up and ready."""
    made = Endpoint(url, Pool(AttemptLimits(), 0.0), 0.0)
    models = tuple(model(*pair.split("-")) for pair in pairs)
    rtt_s = None if rtt_ms is None else rtt_ms / 1e3
    made.update(up=True, hello=Hello("edge", models=models, origin_pairs=pairs), load=LoadReport("ready"), rtt_s=rtt_s)
    return made


def fleet_of(rtt_ms: Mapping[str, float | None], config: RoutingConfig | None = None, **fields: Any) -> Fleet:
    """A fleet whose regions are so far away, all up since 0."""
    config = config or RoutingConfig(regions={name: region(name) for name in rtt_ms}, **fields)
    fleet = Fleet(config, "test")
    edges = [edge(url, rtt_ms=rtt_ms[name]) for name, one in config.regions.items() for url in one.edges]
    fleet.apply(config, "test", edges)
    for endpoint in edges:
        fleet.see(endpoint, 0.0)
    return fleet


def answer(fleet: Fleet, name: str, *, run_ms: float, wait_ms: float = 0.0, depth: int = 0, now: float = 0.0) -> None:
    """The region has answered a request of one unit of work."""
    assert work(CHARS) == 1.0
    stages_ms = {"edge_queue": wait_ms, "edge_run": run_ms}
    fleet.answered(name, features(), accounted_ms=run_ms + wait_ms, stages_ms=stages_ms, depth=depth, now=now)


def down(fleet: Fleet, name: str, now: float) -> None:
    for endpoint in fleet.regions[name].endpoints:
        endpoint.up = False
        fleet.see(endpoint, now)


def up(fleet: Fleet, name: str, now: float) -> None:
    for endpoint in fleet.regions[name].endpoints:
        endpoint.up = True
        fleet.see(endpoint, now)
