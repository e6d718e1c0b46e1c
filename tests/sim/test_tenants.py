"""Tenants through all tiers: whose request it is and in which class travels to the origin; a flood is its sender's."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import Stream
from nearsay.wire.errors import Overloaded, RateLimited
from nearsay.wire.messages import Submit
from proxy.core.routing_config import Tenant
from tests.sim.world import World, world

SENTENCE = "The cat looked at the weather."
LIMIT_PER_S = 5.0
CALM_PER_S = 20.0
SPAN_S = 3.0
IN_FLIGHT_MAX = 24


def test_class_and_tenant_reach_the_origin(models: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def main() -> None:
        async with world(models, 1, edges=1, origins=1) as made:
            [origin] = made.origins
            submit = origin.links._handler

            async def look(stream: Stream) -> None:
                assert isinstance(stream.message, Submit)
                seen.append((stream.message.tenant, stream.message.priority))
                await submit(stream)

            origin.links._handler = look
            made.proxy.tenants.replace({"acme": Tenant(chars_per_s=10.0, burst_s=1.0, bulk_chars_min=20)})
            await made.translate(SENTENCE, tier="origin")  # a first link has the handler that it began with
            for peer in made.edges[0].origins.peers:
                await peer._link._transport.close()  # type: ignore[union-attr]
            await asyncio.sleep(2.0)
            for _ in range(2):
                await made.translate(SENTENCE, tier="origin", tenant="acme")

    run(main())
    assert seen == [("acme", "interactive"), ("acme", "batch")]


async def _ask(world: World, text: str, tenant: str, took: list[float]) -> None:
    began = world.now()
    try:
        await world.translate(text, tier="edge", tenant=tenant, priority="interactive")
    except (RateLimited, Overloaded):
        return
    took.append(world.now() - began)


async def _open_loop(world: World, rng: random.Random, per_s: float, text: str, tenant: str, took: list[float]) -> int:
    """Arrivals of many who don't know of each other (Poisson); how many."""
    end, asked = world.now() + SPAN_S, 0
    while world.now() < end:
        world.tasks.spawn(_ask(world, text, tenant, took), name=tenant)
        asked += 1
        await asyncio.sleep(rng.expovariate(per_s))
    return asked


def beside(models: Path, loud: Tenant, *, loud_per_s: float) -> tuple[float, int]:
    """One tenant's requests beside another's: the 99th percentile in virtual seconds, and how many were refused."""
    took: list[float] = []
    asked = 0

    async def main() -> None:
        nonlocal asked
        async with world(models, 7, edges=1, origins=1) as made:
            made.proxy.service._in_flight_max, made.slow[0] = IN_FLIGHT_MAX, 10.0
            made.proxy.tenants.replace({"loud": loud, "calm": Tenant()})
            asked, _ = await asyncio.gather(
                _open_loop(made, random.Random(1), CALM_PER_S, SENTENCE, "calm", took),
                _open_loop(made, random.Random(2), loud_per_s, SENTENCE * 4, "loud", []),
            )
            await asyncio.sleep(10.0)

    run(main())
    return sorted(took)[int(0.99 * len(took))], asked - len(took)


def test_a_flood_leaves_another_tenants_p99_within_half_as_much_again_of_what_it_was(models: Path) -> None:
    """Beside a tenant that uses what it may, and beside one that asks for sixty times that."""
    limits = Tenant(requests_per_s=LIMIT_PER_S, burst_s=1.0, concurrency_max=2)
    before, refused = beside(models, limits, loud_per_s=LIMIT_PER_S)
    assert refused == 0
    flooded, refused = beside(models, limits, loud_per_s=60 * LIMIT_PER_S)
    assert flooded <= 1.5 * before and refused == 0
    assert beside(models, Tenant(), loud_per_s=60 * LIMIT_PER_S)[1] > 0, "without limits it takes all there is"
