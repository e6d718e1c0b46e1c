"""Slow, silent and lost edges, floods: the services' own code in virtual time, and what clients see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from nearsay.lab.virtual_loop import run
from nearsay.traffic.concurrency import ConcurrencyRules
from nearsay.traffic.ejection import EjectionRules
from nearsay.traffic.hedging import HedgeRules
from proxy.core.limits import AttemptLimits
from tests.sim.test_world import numbered
from tests.sim.world import ORIGIN_STEP_S, World, edge_url, world

SAMPLES = 60  # enough for a pool to know what is usual


def counted(made: World, name: str) -> float:
    counters = made.proxy.metrics.snapshot()["counters"]
    return float(sum(value for key, value in counters.items() if key == name or key.startswith(name + "{")))


async def informed(made: World, tier: str) -> None:
    for number in range(SAMPLES):
        await made.translate(numbered(number), tier=tier)


def test_the_loser_of_a_hedge_is_cancelled_down_to_its_slot(models: Path) -> None:
    limits = AttemptLimits(hedging=HedgeRules(floor_per_s=100.0), ejection=EjectionRules(mode="off"))

    async def main() -> float:
        async with world(models, 2, edges=2, origins=2, attempts=limits) as made:
            await informed(made, "origin")
            made.slow_origins[0] = 100.0
            step_s = 100.0 * ORIGIN_STEP_S
            for number in range(100, 120):
                before = counted(made, "hedges_won")
                await made.translate(numbered(number), tier="origin")
                if counted(made, "hedges_won") > before:
                    await asyncio.sleep(step_s + 0.02)  # the step under way, and two links
                    assert len(made.origins[0].server) == 0
                    assert len(made.origins[0].engine_loop.scheduler) == 0
            made.assert_empty()
            return counted(made, "hedges_won")

    assert run(main()) > 0


def test_a_silent_edge_loses_nothing_and_is_left_out(models: Path) -> None:
    """A black hole: its link stands, and nothing comes back. Pings would take 15 s to tell."""

    async def main() -> tuple[list[float], bool]:
        async with world(models, 2, edges=3, origins=0) as made:
            await informed(made, "edge")
            made.slow[1] = 5000.0
            took: list[float] = []

            async def timed(number: int) -> None:
                began = made.now()
                await made.translate(numbered(number), tier="edge")
                took.append(made.now() - began)

            async with asyncio.TaskGroup() as group:
                for number in range(600):
                    group.create_task(timed(number))
                    await asyncio.sleep(0.005)
            ejected = made.proxy.pool.endpoints[1].ejected
            return took, ejected

    took, ejected = run(main())
    assert ejected
    assert len(took) == 600
    assert max(took[-300:]) < 0.1


def test_a_killed_edge_fails_no_request(models: Path) -> None:
    async def main() -> int:
        async with world(models, 3, edges=3, origins=0) as made:
            work: list[Awaitable[Any]] = []
            for number in range(400):
                work.append(made.tasks.spawn(made.translate(numbered(number), tier="edge"), name="request"))
                await asyncio.sleep(0.003)
                if number == 200:
                    made.net.down(edge_url(0))
            return len(await asyncio.gather(*work))

    assert run(main()) == 400


def test_a_flood_of_one_tenant_leaves_anothers_latency(models: Path) -> None:
    limits = AttemptLimits(concurrency=ConcurrencyRules(limit_first=8, limit_min=4))

    async def p99(flood: int) -> float:
        """Of one tenant's 250 requests, beside so many of another one's for each."""
        async with world(models, 4, edges=3, origins=0, attempts=limits) as made:
            made.slow = dict.fromkeys(range(3), 4.0)
            took: list[float] = []

            async def victim(number: int) -> None:
                began = made.now()
                await made.translate(numbered(number), tier="edge", tenant="victim")
                took.append(made.now() - began)

            async with asyncio.TaskGroup() as group:
                for number in range(250):
                    group.create_task(victim(number))
                    for more in range(flood):
                        work = made.translate(numbered(1000 + flood * number + more), tier="edge", tenant="flood")
                        made.tasks.spawn(_quiet(work), name="flood")
                    await asyncio.sleep(made.rng.expovariate(100.0))
            assert (len(made.proxy.service._gate) > 100) == bool(flood), "no flood"
            return sorted(took)[int(0.99 * len(took))]

    quiet, flooded = run(p99(0)), run(p99(12))
    assert flooded <= 1.5 * quiet, (quiet, flooded)


async def _quiet(answer: Awaitable[Any]) -> None:
    try:
        await answer
    except Exception:
        return
