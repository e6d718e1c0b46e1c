"""The links to all edge workers, and the fleet that they make up: linked and let go as the routing config says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Hello, LoadReport, Message, Translated
from proxy.core.catalogue import Catalogue
from proxy.core.endpoint import Endpoint, Outcome, Permit
from proxy.core.fleet import Fleet
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool
from proxy.core.route import Route
from proxy.core.routing_check import Routing
from proxy.core.standing import Turn

QUEUES = ("edge_queue", "origin_queue")  # stages of an answer that were waiting


class EdgeStream(Protocol):
    """One open request, as far as the proxy uses `nearsay.runtime.link.Stream`."""

    async def receive(self) -> Message: ...
    def cancel(self) -> None: ...


class EdgePeer(Protocol):
    """A live session to one edge, as far as the proxy uses `nearsay.runtime.link.Peer`."""

    @property
    def url(self) -> str: ...
    @property
    def ready(self) -> bool: ...
    @property
    def hello(self) -> Hello | None: ...
    @property
    def load(self) -> LoadReport | None: ...
    @property
    def rtt_s(self) -> float | None: ...

    def on_change(self, callback: Callable[[], None]) -> None: ...
    async def start(self) -> None: ...
    async def open(self, message: Message) -> EdgeStream: ...
    async def close(self) -> None: ...


class EdgePool:
    """All edges of this proxy. `catalogue` is what they serve together; it outlives their absence."""

    def __init__(
        self,
        routing: Routing,
        new_peer: Callable[[str], EdgePeer],
        limits: AttemptLimits,
        *,
        drain_s: float,
        tasks: Tasks,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        """`drain_s`: how long the requests of an edge that the config has dropped may take to end."""
        self.fleet = Fleet(routing.config, routing.label)
        self.catalogue = Catalogue(())
        self._new_peer = new_peer
        self._limits = limits
        self._drain_s = drain_s
        self._tasks = tasks
        self._metrics = metrics
        self._clock = clock
        self._pools: dict[str, Pool] = {}  # by region
        self._callbacks: list[Callable[[], None]] = []
        self._peers: dict[str, EdgePeer] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._leaving: list[tuple[EdgePeer, Endpoint]] = []
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._take_over(routing)

    async def start(self, wait_s: float) -> bool:
        """Connect to all edges; wait at most `wait_s` for a first one. Says whether one is there."""
        for peer in self.peers:
            await peer.start()
            self._update(peer.url)
        try:
            async with asyncio.timeout(wait_s):
                while not any(endpoint.available for endpoint in self.endpoints):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def apply(self, routing: Routing) -> None:
        """Route by another config from now on: new edges are linked, dropped ones end what they have begun."""
        for peer in self._take_over(routing):
            await peer.start()
        self._metrics.count("routing_reloads")

    async def close(self) -> None:
        """Close every link."""
        for peer in [*self.peers, *(peer for peer, _ in self._leaving)]:
            await peer.close()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The edges, region by region."""
        return self.fleet.endpoints

    @property
    def peers(self) -> tuple[EdgePeer, ...]:
        """The links, one an edge."""
        return tuple(self._peers.values())

    def peer(self, endpoint: Endpoint) -> EdgePeer:
        """The link to an endpoint, also to one that the config has dropped, while its requests end."""
        leaving = (peer for peer, left in self._leaving if left is endpoint)
        return next(leaving, None) or self._peers[endpoint.name]

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call whenever an edge comes, goes or says something new."""
        self._callbacks.append(callback)

    async def change(self) -> None:
        """Wait until an edge comes, goes or says something new."""
        await self._changed.wait()

    def began(self, permit: Permit, route: Route, *, hedge: bool = False) -> None:
        """An attempt was given its place."""
        why = route.began(permit.endpoint, hedge=hedge)
        self._metrics.count("routed", region=permit.endpoint.region, why=why)

    def ended(self, permit: Permit, outcome: Outcome, route: Route, answer: Translated | None = None) -> None:
        """An attempt ended: whoever was given its place says so, once."""
        now, endpoint = self._clock(), permit.endpoint
        queued_s = 0.0 if answer is None else sum(answer.stages_ms.get(stage, 0.0) for stage in QUEUES) / 1e3
        if event := permit.end(outcome, now, queued_s):
            self._metrics.count(event, edge=endpoint.name)
        if answer is not None:
            route.answered(endpoint, answer.accounted_ms, answer.stages_ms, now)
        silent = outcome == "late" and permit.bad
        self._turned(endpoint.region, route.ended(endpoint, "failed" if silent else outcome, now))
        if self._leaving:
            self._ended.set()

    def _take_over(self, routing: Routing) -> list[EdgePeer]:
        """Make the fleet what the config says; the links that are new. An edge that changes its region begins anew."""
        urls = {url: name for name, region in routing.config.regions.items() for url in region.edges}
        new = []
        for url, region in urls.items():
            known = self._endpoints.get(url)
            if known is None or known.region != region:
                if known is not None:
                    known.leave()
                self._endpoints[url] = self._new_endpoint(url, region)
            if url not in self._peers:
                peer = self._peers[url] = self._new_peer(url)
                peer.on_change(lambda url=url: self._update(url))  # type: ignore[misc]
                new.append(peer)
        for url in self._peers.keys() - urls.keys():
            self._tasks.spawn(self._let_go(self._peers.pop(url), self._endpoints.pop(url)), name=f"leave {url}")
        self.fleet.apply(routing.config, routing.label, self._endpoints.values())
        for url in urls:
            self._update(url)
        self.catalogue = Catalogue(self.endpoints)
        return new

    def _new_endpoint(self, url: str, region: str) -> Endpoint:
        pool = self._pools.get(region)
        if pool is None:
            pool = self._pools[region] = Pool(self._limits, self._clock())
        return Endpoint(url, pool, self._clock(), region)

    async def _let_go(self, peer: EdgePeer, endpoint: Endpoint) -> None:
        """Close a link whose edge gets nothing new, when its last request has ended or the time for that is up."""
        endpoint.leave()
        self._metrics.gauge("edge_available", 0.0, edge=endpoint.name)
        leaving = peer, endpoint
        self._leaving.append(leaving)
        try:
            async with asyncio.timeout(self._drain_s):
                while endpoint.in_flight:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            self._metrics.count("drain_timeouts")
        finally:
            self._leaving.remove(leaving)
            await peer.close()

    def _update(self, url: str) -> None:
        peer, endpoint = self._peers.get(url), self._endpoints.get(url)
        if peer is None or endpoint is None:
            return  # it was let go; what it still says concerns nobody
        served = endpoint.served
        endpoint.update(up=peer.ready, hello=peer.hello, load=peer.load, rtt_s=peer.rtt_s)
        if endpoint.served != served:
            self.catalogue = Catalogue(self.endpoints)
        self._turned(endpoint.region, self.fleet.see(endpoint, self._clock()))
        self._show(endpoint)
        self._changed.set()
        self._changed = asyncio.Event()
        for callback in self._callbacks:
            callback()

    def _show(self, endpoint: Endpoint) -> None:
        self._metrics.gauge("edge_available", float(endpoint.available), edge=endpoint.name)
        region = self.fleet.regions[endpoint.region]
        self._metrics.gauge("region_edges_up", sum(e.available for e in region.endpoints), region=region.name)
        if region.rtt_s is not None:
            self._metrics.gauge("region_rtt_ms", region.rtt_s * 1e3, region=region.name)

    def _turned(self, region: str, turn: Turn | None) -> None:
        if turn is not None:
            self._metrics.count("region_turns", region=region, turn=turn)
