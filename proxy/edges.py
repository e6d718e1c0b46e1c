"""The pool of edge workers: one warm link to each, what each serves, and waiting for one that can take a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.traffic.picker import Chance
from nearsay.wire.errors import Unavailable
from nearsay.wire.messages import Hello, LoadReport, Message
from proxy.core.attempts import Attempts
from proxy.core.catalogue import Catalogue
from proxy.core.endpoint import Endpoint
from proxy.core.limits import AttemptLimits


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

    def on_change(self, callback: Callable[[], None]) -> None: ...
    async def start(self) -> None: ...
    async def open(self, message: Message) -> EdgeStream: ...
    async def close(self) -> None: ...


class EdgePool:
    """All edges of this proxy. `catalogue` is what they serve together; it outlives their absence."""

    def __init__(
        self,
        peers: Sequence[EdgePeer],
        limits: AttemptLimits,
        *,
        metrics: Metrics,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._chance = chance
        self._peers = {peer.url: peer for peer in peers}
        self.endpoints = tuple(
            Endpoint(url, tau_s=limits.latency_tau_s, failure_cost_s=limits.failure_cost_s, now=clock())
            for url in self._peers
        )
        self.catalogue = Catalogue(())
        self._changed = asyncio.Event()
        for endpoint in self.endpoints:
            self._peers[endpoint.name].on_change(lambda endpoint=endpoint: self._update(endpoint))  # type: ignore[misc]

    async def start(self, wait_s: float) -> bool:
        """Connect to all edges; wait at most `wait_s` for a first one. Says whether one is there."""
        for endpoint in self.endpoints:
            await self._peers[endpoint.name].start()
            self._update(endpoint)
        try:
            async with asyncio.timeout(wait_s):
                while not any(endpoint.available for endpoint in self.endpoints):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close every link."""
        for peer in self._peers.values():
            await peer.close()

    @property
    def peers(self) -> tuple[EdgePeer, ...]:
        """The links, one an edge."""
        return tuple(self._peers.values())

    def peer(self, endpoint: Endpoint) -> EdgePeer:
        """The link to an endpoint."""
        return self._peers[endpoint.name]

    async def choose(self, attempts: Attempts) -> Endpoint:
        """The edge of the next attempt; waits a moment for one. Raises Unavailable (edge_unavailable)."""
        endpoint = attempts.choose(self.endpoints, self._clock(), self._chance)
        if endpoint is not None:
            return endpoint
        try:
            async with asyncio.timeout(self._limits.edge_wait_ms / 1000.0):
                while endpoint is None:
                    await self._changed.wait()
                    endpoint = attempts.choose(self.endpoints, self._clock(), self._chance)
        except TimeoutError:
            detail = "no edge worker that serves this pair is connected and ready"
            raise Unavailable(detail, code="edge_unavailable", retry_after_ms=self._limits.edge_wait_ms) from None
        return endpoint

    def _update(self, endpoint: Endpoint) -> None:
        peer = self._peers[endpoint.name]
        served = endpoint.served
        endpoint.update(up=peer.ready, hello=peer.hello, load=peer.load)
        if endpoint.served != served:
            self.catalogue = Catalogue(self.endpoints)
        self._metrics.gauge("edge_available", float(endpoint.available), edge=endpoint.name)
        self._changed.set()
        self._changed = asyncio.Event()
