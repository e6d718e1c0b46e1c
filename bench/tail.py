"""Case tail: what slow, killed and flooded edges cost users, in virtual time: a second is as long as its events.

The proxy's own service, gate, attempts and pool, before five simulated edges (sim_edges.py). Arrivals are an open loop
of seeded Poisson streams. Hedging: each edge stalls 20 times the usual on 1 % of requests, ejection is off, and hedging
off is the arm compared with. Everything else runs with the proxy's defaults.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from bench.report import Measure, Note, write_result
from bench.sim_edges import SimEdge
from bench.tail_world import EDGES, Sent, World, now, played, quantile
from nearsay.lab.virtual_loop import run
from nearsay.traffic.ejection import EjectionRules
from nearsay.traffic.hedging import HedgeRules
from proxy.core.limits import AttemptLimits

SLOTS, SERVICE_S = 8, 0.010
LOAD = 0.4  # of the slots
WARM_S = 5.0  # before anything goes wrong
AFTER_S = 10.0
WINDOW_S = 0.25  # in which a p99 is looked at
NORMAL = 1.2  # times the p99 before: back to normal
FLOOD_SLOTS, FLOOD_SERVICE_S = 32, 0.100  # edges like ours: a batch of rows at once
FLOOD = 2.0  # of the pool's capacity, on top of the others' load


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tail-requests", type=int, default=60_000, help="of each arm of the hedging experiment")
    parser.add_argument("--seed", type=int, default=1)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    hedge, hedge_notes = _hedging(options.seed, options.tail_requests)
    eject_s, eject_notes = _slow_edge(options.seed)
    killed, killed_notes = _killed_edge(options.seed)
    flood, flood_notes = _flood(options.seed)
    measures = (
        *hedge,
        Measure("slow_edge_eject_s", eject_s, "s", 5.0, 2.0, "lower"),
        *killed,
        Measure("flood_p99_ratio", flood, "", 1.5, 1.3, "lower"),
    )
    notes: dict[str, Note] = {"seed": options.seed, "edges": EDGES, "load": LOAD, "service_ms": SERVICE_S * 1e3}
    return write_result("tail", measures, notes | hedge_notes | eject_notes | killed_notes | flood_notes)


# ---- hedging ---------------------------------------------------------------------------------------------------------


def _hedging(seed: int, requests: int) -> tuple[tuple[Measure, ...], dict[str, Note]]:
    def arm(hedging: HedgeRules) -> World:
        async def arm_of() -> World:
            limits = AttemptLimits(hedging=hedging, ejection=EjectionRules(mode="off"))
            world = World(limits, seed, slots=SLOTS, service_s=SERVICE_S, stalls=0.01)
            rate = LOAD * world.capacity
            await played(world, lambda world: world.load("all", rate, requests / rate))
            return world

        return run(arm_of())

    without, hedged = arm(HedgeRules(mode="off")), arm(HedgeRules())
    times = [[sent.took_s * 1e3 for sent in world.sent["all"]] for world in (without, hedged)]
    p999 = [quantile(took, 0.999) for took in times]
    count = len(hedged.sent["all"])
    work = [sum(edge.busy_s for edge in world.edges) for world in (without, hedged)]
    measures = (
        Measure("hedge_p999_ratio", p999[0] / p999[1], "", 3.0, 5.0, "higher"),
        Measure("hedge_extra_requests", _hedges(hedged) / count, "", 0.05, 0.03, "lower"),
    )
    return measures, {
        "hedge_requests": count,
        "hedge_p999_ms_without": round(p999[0], 2),
        "hedge_p999_ms": round(p999[1], 2),
        "hedge_p99_ms_without": round(quantile(times[0], 0.99), 2),
        "hedge_p99_ms": round(quantile(times[1], 0.99), 2),
        "hedge_busy_time_over_without": round(work[1] / work[0], 4),  # the stalls that are cut short are saved
        "hedges_won": hedged.counted("hedges_won"),
    }


def _hedges(world: World) -> float:
    counters = world.metrics.snapshot()["counters"]
    return float(sum(counters.get(f"{name}{{hedged=yes}}", 0.0) for name in ("late", "stuck")))


# ---- an edge goes wrong ----------------------------------------------------------------------------------------------


def _slow_edge(seed: int) -> tuple[float, dict[str, Note]]:
    """Seconds until an edge that became 20 times slower is left out."""

    def ejected_after(load: float, hedging: HedgeRules) -> float:
        async def script(world: World) -> float:
            loading = asyncio.gather(world.load("all", load * world.capacity, WARM_S + AFTER_S))
            await asyncio.sleep(WARM_S)
            world.edges[0].slow = 20.0
            slow_at = now()
            while not world.pool.endpoints[0].ejected and now() < slow_at + AFTER_S:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            after_s = now() - slow_at
            await loading
            return after_s

        after_s: float = run(_played(AttemptLimits(hedging=hedging), seed, script))
        return after_s

    default = ejected_after(LOAD, HedgeRules())
    return default, {
        "slow_edge_eject_s_at_tenth_of_load": round(ejected_after(LOAD / 10, HedgeRules()), 3),
        "slow_edge_eject_s_without_hedging": round(ejected_after(LOAD, HedgeRules(mode="off")), 3),
    }


def _killed_edge(seed: int) -> tuple[tuple[Measure, ...], dict[str, Note]]:
    """Failed requests, and seconds until p99 is what it was, when an edge's link breaks, or goes silent."""

    def outcome(harm: Callable[[SimEdge], None]) -> tuple[int, float]:
        async def script(world: World) -> tuple[int, float]:
            loading = asyncio.gather(world.load("all", LOAD * world.capacity, WARM_S + AFTER_S))
            await asyncio.sleep(WARM_S)
            harm(world.edges[0])
            at = now()
            await loading
            await world.service.idle()
            sent = world.sent["all"]
            return sum(not each.ok for each in sent), _normal_after(sent, at)

        failed_normal: tuple[int, float] = run(_played(AttemptLimits(), seed, script))
        return failed_normal

    failed, normal_s = outcome(SimEdge.kill)
    silent_failed, silent_s = outcome(_silence)
    measures = (
        Measure("killed_edge_failed", failed, "requests", 0, 0, "lower"),
        Measure("killed_edge_normal_s", normal_s, "s", 3.0, 1.0, "lower"),
    )
    return measures, {"silent_edge_failed": silent_failed, "silent_edge_normal_s": round(silent_s, 3)}


def _silence(edge: SimEdge) -> None:
    edge.silent = True


def _normal_after(sent: Sequence[Sent], at: float) -> float:
    """End of the last window after `at` whose p99 is above what is normal, in seconds from `at`."""
    normal = NORMAL * quantile([each.took_s for each in sent if each.at < at], 0.99)
    windows: dict[int, list[float]] = {}
    for each in sent:
        if each.at >= at:
            windows.setdefault(int((each.at - at) / WINDOW_S), []).append(each.took_s)
    bad = [number for number, took in windows.items() if quantile(took, 0.99) > normal]
    return (max(bad) + 1) * WINDOW_S if bad else 0.0


# ---- a flood ---------------------------------------------------------------------------------------------------------


def _flood(seed: int) -> tuple[float, dict[str, Note]]:
    """p99 of a tenant beside another one's flood, over its p99 without it."""

    def p99(flood: float) -> tuple[float, World]:
        async def script() -> tuple[float, World]:
            world = World(AttemptLimits(), seed, slots=FLOOD_SLOTS, service_s=FLOOD_SERVICE_S)
            rates = {"user": 0.2 * world.capacity, "other": 0.2 * world.capacity, "flood": flood * world.capacity}

            async def all_of_them(world: World) -> None:
                loads = (world.load(name, rate, AFTER_S) for name, rate in rates.items() if rate)
                await asyncio.gather(*loads)

            await played(world, all_of_them)
            return quantile([each.took_s * 1e3 for each in world.sent["user"]], 0.99), world

        return run(script())

    (quiet, _), (flooded, world) = p99(0.0), p99(FLOOD)
    answered = {name: sum(each.ok for each in sent) / len(sent) for name, sent in world.sent.items()}
    return flooded / quiet, {
        "flood_over_capacity": FLOOD,
        "flood_p99_ms_without": round(quiet, 1),
        "flood_p99_ms": round(flooded, 1),
        "flood_users_answered": round(answered["user"], 4),
        "flood_answered": round(answered["flood"], 4),
    }


# ----------------------------------------------------------------------------------------------------------------------


async def _played(limits: AttemptLimits, seed: int, script: Callable[[World], Coroutine[Any, Any, Any]]) -> Any:
    return await played(World(limits, seed, slots=SLOTS, service_s=SERVICE_S), script)
