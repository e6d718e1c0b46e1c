"""The only place that builds a proxy's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.config import load_config
from nearsay.runtime.inherited import Inherited, inherited
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import Connect, Dial, LinkServer, Peer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.parent import run_parent
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.workers import row_count
from nearsay.wire.messages import Hello
from proxy.config import ProxyConfig, check
from proxy.core.ledger import Ledger, memory_bytes
from proxy.core.routing_config import Tenant
from proxy.edges import EdgePool
from proxy.handlers import Handlers
from proxy.link_door import LinkDoor
from proxy.service import TranslateService
from proxy.shared_limits import Memory, RedisBoard, SharedLimits
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
        tenants: Mapping[str, Tenant] = {},
        ledger: Ledger | None = None,
        shared: SharedLimits | None = None,
    ) -> None:
        """`ledger`: what tenants used, if others count it too; `shared`: what this process does about that."""
        rng = rng or random.Random()
        self.config = config
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(self.name)
        self._instance = new_id()
        self._tasks = Tasks()
        dial = Dial.of(config)
        peers = [
            Peer(
                url,
                hello=self._to_edge,
                tasks=self._tasks,
                limits=config.link,
                clock=clock,
                connect=connect,
                rng=rng,
                dial=dial,
            )
            for url in dict.fromkeys(config.edges)
        ]
        self.pool = EdgePool(peers, config.attempts, metrics=self.metrics, clock=clock, chance=rng.randrange)
        ledger = ledger or Ledger(bytearray(memory_bytes(1)), rows=1, row=0)
        self._shared = shared
        self.tenants = Tenants(config, tenants, ledger, metrics=self.metrics, clock=clock)
        self.service = TranslateService(
            self.pool,
            self.tenants,
            config.attempts,
            in_flight_max=config.in_flight_max,
            lifecycle=self.lifecycle,
            metrics=self.metrics,
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
        self._handlers = Handlers(
            self.service,
            self.pool,
            self._link,
            self.tenants,
            config,
            metrics=self.metrics,
            tasks=self._tasks,
            clock=clock,
            new_id=new_id,
        )

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port."""
        return self._handlers.routes()

    async def start(self) -> None:
        """Connect to the edges and wait a moment for the first; without one, requests get 503 until it comes."""
        self._tasks.spawn(self.tenants.look_often(), name="look at limits")
        if self._shared is not None:
            self._tasks.spawn(self._shared.run(self.metrics), name="shared limits")
        await self.pool.start(self.config.start_wait_s)

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
    tenants: Mapping[str, Tenant] = {},
    given: Inherited | None = None,
) -> Proxy:
    """A proxy from its config. Raises ConfigError. `connect`, `clock`, `rng` and `new_id` are for simulations; `given`
    is what a parent of several processes gave to this one."""
    checked = check(config, tenants)
    ledger, shared = None, None
    if given is not None:
        ledger = Memory.of(given).ledger(given.row)
    elif config.limits_redis:
        shared = SharedLimits(1, RedisBoard(config.limits_redis), clock=clock)
        ledger = shared.own.ledger(0)
    return Proxy(
        checked,
        clock=clock,
        connect=connect,
        rng=rng,
        new_id=new_id,
        tenants=tenants,
        ledger=ledger,
        shared=shared,
    )


def main(config_path: Path | None, overrides: Mapping[str, object] | None = None) -> int:
    """Run a proxy, or the parent of several, until it is told to stop; the exit status. Raises ConfigError."""

    def load() -> ProxyConfig:
        return check(load_config(config_path, ProxyConfig, overrides or {}))

    config, given = load(), inherited()
    if given is None and config.workers:
        board = RedisBoard(config.limits_redis) if config.limits_redis else None
        shared = SharedLimits(row_count(config.workers), board, clock=time.monotonic)
        command = [sys.executable, "-m", "proxy", *sys.argv[1:]]
        return run_parent(Proxy.name, command, load, config.workers, shared=shared)
    return run(build(config, given=given), given)
