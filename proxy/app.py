"""The only place that builds a proxy's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from aiohttp import web

from nearsay.runtime.clock import Clock, wall_clock
from nearsay.runtime.config import load_config
from nearsay.runtime.inherited import Inherited, inherited
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import Connect, Dial, LinkServer, Peer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.parent import run_parent
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.workers import row_count
from nearsay.wire.grant import GrantKey
from nearsay.wire.messages import Hello
from proxy.config import ProxyConfig, check, routing_of
from proxy.core.fleet_view import view
from proxy.core.ledger import Ledger, memory_bytes
from proxy.core.probes import ProbeTable
from proxy.core.routing_check import Routing, named
from proxy.core.routing_config import Tenant
from proxy.edges import EdgePool
from proxy.gate import Gate
from proxy.handlers import Handlers
from proxy.link_door import LinkDoor
from proxy.location import Locator
from proxy.route_door import RouteDoor
from proxy.routing_file import RoutingFile
from proxy.routing_file import load as load_routing
from proxy.service import TranslateService
from proxy.shared_limits import Memory, RedisBoard, SharedLimits
from proxy.steer_fleet import FleetRegions
from proxy.tenants import Tenants


def new_id() -> str:
    """A request id: 64 random bits."""
    return secrets.token_hex(8)


class Proxy:
    """A proxy process as `nearsay.runtime.service` runs it."""

    name = "proxy"

    def __init__(
        self,
        config: ProxyConfig,
        *,
        clock: Clock = time.monotonic,
        connect: Connect | None = None,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = new_id,
        wall: Clock = wall_clock,
        tenants: Mapping[str, Tenant] = {},
        ledger: Ledger | None = None,
        shared: SharedLimits | None = None,
    ) -> None:
        """`tenants`: those of a proxy without a routing file. `ledger`: what tenants used, if others count it too;
        `shared`: what this process does about that."""
        rng = rng or random.Random()
        self.config = config
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(self.name)
        self._instance = new_id()
        self._clock = clock
        self._tasks = Tasks()
        self._routing = RoutingFile(config.routing, self._apply, self.metrics) if config.routing is not None else None
        routing = named(routing_of(config, tenants)) if self._routing is None else self._routing.routing
        check(config, routing.config.tenants)
        self.pool = self._new_pool(routing, connect, rng)
        ledger = ledger or Ledger(bytearray(memory_bytes(1)), rows=1, row=0)
        self._shared = shared
        self.tenants = Tenants(config, routing.config.tenants, ledger, metrics=self.metrics, clock=clock)
        self.service = TranslateService(
            self.pool,
            Gate(self.pool, config.attempts, metrics=self.metrics, clock=clock, chance=rng.randrange),
            self.tenants,
            config.attempts,
            in_flight_max=config.in_flight_max,
            lifecycle=self.lifecycle,
            metrics=self.metrics,
            tasks=self._tasks,
            clock=clock,
        )
        door = LinkDoor(
            self.service, self.pool, self.tenants, config.request, metrics=self.metrics, clock=clock, new_id=new_id
        )
        self._link = LinkServer(
            hello=self._to_client,
            handler=door.serve,
            tasks=self._tasks,
            limits=config.link,
            clock=clock,
            secret=self.tenants.key_id,  # an SDK shows its key as the secret of its hello
        )
        self._locator = Locator(Path(config.geoip) if config.geoip else None)
        self._handlers = Handlers(
            self.service,
            self.pool,
            self._link,
            self.tenants,
            config,
            self._route_door(wall),
            self._locator,
            metrics=self.metrics,
            tasks=self._tasks,
            clock=clock,
            new_id=new_id,
        )

    def _new_pool(self, routing: Routing, connect: Connect | None, rng: random.Random) -> EdgePool:
        config, dial = self.config, Dial.of(self.config)

        def new_peer(url: str) -> Peer:
            return Peer(
                url,
                hello=self._to_edge,
                tasks=self._tasks,
                limits=config.link,
                clock=self._clock,
                connect=connect,
                rng=rng,
                dial=dial,
            )

        return EdgePool(
            routing,
            new_peer,
            config.attempts,
            drain_s=config.drain_timeout_s,
            tasks=self._tasks,
            metrics=self.metrics,
            clock=self._clock,
        )

    def _route_door(self, wall: Clock) -> RouteDoor:
        secret = self.config.grant_key or self.config.secret
        return RouteDoor(
            FleetRegions(self.pool.fleet),
            self.config.direct,
            ProbeTable(self.config.probes),
            GrantKey(secret) if secret else None,
            metrics=self.metrics,
            clock=self._clock,
            wall=wall,
        )

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port."""
        return self._handlers.routes()

    def admin_routes(self) -> list[web.RouteDef]:
        """Routes of the admin port beside those that every service has."""
        return [web.get("/routing", self._show_routing)]

    async def start(self) -> None:
        """Connect to the edges and wait a moment for the first; without one, requests get 503 until it comes."""
        self._tasks.spawn(self.tenants.look_often(), name="look at limits")
        if self._shared is not None:
            self._tasks.spawn(self._shared.run(self.metrics), name="shared limits")
        if self._routing is not None:
            self._tasks.spawn(self._routing.watch(), name="watch the routing file")
        if self._locator.wanted:
            await self._locator.refresh()
            self._tasks.spawn(self._locator.watch(), name="geoip file")
        await self.pool.start(self.config.start_wait_s)

    def reload(self) -> None:
        """Read again what may change while it runs: SIGHUP."""
        if self._routing is not None:
            self._tasks.spawn(self._routing.reload(), name="reload")

    async def drain(self) -> None:
        """Let the requests in flight finish; new ones are refused by the lifecycle's state."""
        timeout_s = self.config.drain_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(self._link.drain(timeout_s), self.service.idle())
        except TimeoutError:
            self.metrics.count("drain_timeouts")

    async def stop(self) -> None:
        """Close every link and end every task."""
        await self.pool.close()
        await self._tasks.close()
        self._locator.close()

    async def _apply(self, routing: Routing) -> None:
        """A new routing config, whole."""
        self.tenants.replace(routing.config.tenants)
        await self.pool.apply(routing)

    async def _show_routing(self, _: web.Request) -> web.Response:
        problems = [] if self._routing is None else self._routing.problems
        shown = msgspec.json.encode({"problems": problems, "fleet": view(self.pool.fleet, self._clock())})
        return web.Response(body=shown, content_type="application/json")

    def _to_edge(self) -> Hello:
        return Hello("proxy", instance=self._instance, state=self.lifecycle.state, secret=self.config.secret)

    def _to_client(self) -> Hello:
        return Hello("proxy", instance=self._instance, state=self.lifecycle.state, models=self.pool.catalogue.models)


def build(
    config: ProxyConfig,
    *,
    clock: Clock = time.monotonic,
    connect: Connect | None = None,
    rng: random.Random | None = None,
    new_id: Callable[[], str] = new_id,
    wall: Clock = wall_clock,
    tenants: Mapping[str, Tenant] = {},
    given: Inherited | None = None,
) -> Proxy:
    """A proxy from its config. Raises ConfigError. `given` is what a parent of several processes gave to this one; the
    rest is for simulations."""
    ledger, shared = None, None
    if given is not None:
        ledger = Memory.of(given).ledger(given.row)
    elif config.limits_redis:
        shared = SharedLimits(1, RedisBoard(config.limits_redis), clock=clock)
        ledger = shared.own.ledger(0)
    return Proxy(
        config,
        clock=clock,
        connect=connect,
        rng=rng,
        new_id=new_id,
        wall=wall,
        tenants=tenants,
        ledger=ledger,
        shared=shared,
    )


def main(config_path: Path | None, overrides: Mapping[str, object] | None = None) -> int:
    """Run a proxy, or the parent of several, until it is told to stop; the exit status. Raises ConfigError."""

    def load() -> ProxyConfig:
        config = load_config(config_path, ProxyConfig, overrides or {})
        return check(config, {} if config.routing is None else load_routing(config.routing).config.tenants)

    config, given = load(), inherited()
    if given is None and config.workers:
        board = RedisBoard(config.limits_redis) if config.limits_redis else None
        shared = SharedLimits(row_count(config.workers), board, clock=time.monotonic)
        command = [sys.executable, "-m", "proxy", *sys.argv[1:]]
        return run_parent(Proxy.name, command, load, config.workers, shared=shared)
    return run(build(config, given=given), given)
