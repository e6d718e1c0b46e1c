"""The proxy's own service, gate, attempts and pool before simulated edges (sim_edges.py), on virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from bench.sim_edges import SimEdge
from nearsay.lab.schedule import arrivals
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError
from proxy.config import ProxyConfig
from proxy.core.ledger import Ledger, memory_bytes
from proxy.core.limits import AttemptLimits
from proxy.core.routing_check import named
from proxy.core.routing_config import Region, RoutingConfig
from proxy.core.stages import Timeline
from proxy.edges import EdgePool
from proxy.gate import Gate
from proxy.request import ValidRequest
from proxy.service import Call, TranslateService
from proxy.tenants import Tenants

EDGES = 5
IN_FLIGHT_MAX = 4096


class Sent(msgspec.Struct):
    """One request: when, how long, and whether it was answered."""

    at: float
    took_s: float
    ok: bool


class World:
    """A proxy's service before simulated edges. `sent` are all requests that have ended, by tenant."""

    def __init__(self, limits: AttemptLimits, seed: int, *, slots: int, service_s: float, stalls: float = 0.0) -> None:
        self.edges = [
            SimEdge(number, seed=seed, slots=slots, service_s=service_s, stall_share=stalls) for number in range(EDGES)
        ]
        self.capacity = EDGES * slots / service_s  # requests a second
        self.rng = random.Random(seed)
        self.sent: dict[str, list[Sent]] = {}
        self.metrics = Metrics("proxy")
        self._tasks = Tasks()
        self._numbers = itertools.count()
        lifecycle, ledger = Lifecycle(), Ledger(bytearray(memory_bytes(1)), rows=1, row=0)
        lifecycle.move("ready")
        by_url = {edge.url: edge for edge in self.edges}
        region = Region(edges=tuple(by_url), in_flight_max=IN_FLIGHT_MAX)
        self.pool = EdgePool(
            named(RoutingConfig(regions={"here": region})),
            by_url.__getitem__,
            limits,
            drain_s=1.0,
            tasks=self._tasks,
            metrics=self.metrics,
            clock=now,
        )
        self.service = TranslateService(
            self.pool,
            Gate(self.pool, limits, metrics=self.metrics, clock=now, chance=self.rng.randrange),
            Tenants(ProxyConfig(), {}, ledger, metrics=self.metrics, clock=now),
            limits,
            in_flight_max=IN_FLIGHT_MAX,
            lifecycle=lifecycle,
            metrics=self.metrics,
            tasks=self._tasks,
            clock=now,
        )

    async def load(self, tenant: str, rate_per_s: float, duration_s: float) -> None:
        """Requests of one tenant, due at seeded instants whatever becomes of the earlier ones."""
        began, rng = now(), random.Random(self.rng.getrandbits(64))
        for due in arrivals("poisson", rate_per_s, duration_s, rng):
            await asyncio.sleep(max(0.0, began + due - now()))
            self._tasks.spawn(self._one(tenant), name="request")

    async def close(self) -> None:
        """Wait for the requests in flight."""
        await self.service.idle()
        await self._tasks.close()

    def counted(self, name: str) -> float:
        """A counter, summed over its labels."""
        counters = self.metrics.snapshot()["counters"]
        return float(sum(v for key, v in counters.items() if key.partition("{")[0] == name))

    async def _one(self, tenant: str) -> None:
        number = next(self._numbers)
        request = ValidRequest(
            (f"{number:050}",),
            "en",
            "de",
            "edge",
            "interactive",
            10_000.0,
            stream=False,
            segments=False,
            session="",
            chars=50,
        )
        began = now()
        call = Call(str(number), Timeline(arrived=began, parsed=began), tenant=tenant)
        ok = True
        try:
            await self.service.translate(request, call)
        except NearsayError:
            ok = False
        self.sent.setdefault(tenant, []).append(Sent(began, now() - began, ok))


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


async def played(world: World, script: Callable[[World], Awaitable[Any]]) -> Any:
    """What the script returns, once the pool is started and until its requests have ended."""
    await world.pool.start(1.0)
    result = await script(world)
    await world.close()
    return result


def quantile(values: Sequence[float], q: float) -> float:
    """Value at rank `q`, nearest rank."""
    ordered = sorted(values)
    return ordered[round(q * (len(ordered) - 1))]
