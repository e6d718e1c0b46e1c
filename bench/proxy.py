"""Case proxy: what Nearsay's proxy costs, beside nginx, HAProxy and LiteLLM in front of the same echo, in one run.

Each proxy has core 0 to itself; the client and the echo share core 1. Capacity is a closed loop's; requests a second
and core are requests over the proxy's own CPU time, which a slow client doesn't distort. Latency is an open loop's at
40 % of capacity over 1,000 open connections, from when a request was due; added is that less the same without a proxy.
LiteLLM is measured where `--litellm PATH` names its program (PyPI: litellm[proxy]).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lean_http import Connection, ResponseError
from bench.report import Measure, Note, write_result
from bench.rivals import NATIVE, Rival, Upstream, cpu_seconds, resident_bytes, running, version
from nearsay.lab.report import percentile
from nearsay.lab.schedule import arrivals
from nearsay.runtime.service import loop_factory
from nearsay.runtime.tasks import Tasks

PROXY_CPU, CLIENT_CPU = 0, 1
CLOSED_CONNECTIONS = 64
OPEN_CONNECTIONS = 1_000
MANY_CONNECTIONS = 5_000
CONNECT_AT_ONCE = 100
SHARE_OF_CAPACITY = 0.4
WARM_UP_S = 1.0
ECHO_START_S = 60.0


@dataclass(frozen=True)
class Figures:
    """Of one proxy."""

    capacity_per_s: float
    per_core_s: float
    rate_per_s: float
    p50_ms: float
    p99_ms: float
    direct_p50_ms: float
    direct_p99_ms: float
    errors: int

    @property
    def added_p50_ms(self) -> float:
        return self.p50_ms - self.direct_p50_ms

    @property
    def added_p99_ms(self) -> float:
        return self.p99_ms - self.direct_p99_ms


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--litellm", type=Path, help="LiteLLM's program, in an environment of its own")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--proxies", default="nearsay,nginx,haproxy,litellm", help="which, with commas")


def main(options: argparse.Namespace) -> Path:
    """Measure and write the result."""
    os.sched_setaffinity(0, {CLIENT_CPU})
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Path:
    figures: dict[str, Figures] = {}
    many: dict[str, float] = {}
    tasks = Tasks()
    try:
        with tempfile.TemporaryDirectory(prefix="nearsay-bench-") as folder:
            async with echo() as upstream:
                for name in options.proxies.split(","):
                    if name == "litellm" and options.litellm is None:
                        continue
                    async with running(name, upstream, Path(folder), PROXY_CPU, options.litellm) as rival:
                        figures[name] = await _figures(rival, upstream, options.seconds, tasks)
                        if name == "nearsay":
                            many = await _many(rival)
    finally:
        await tasks.close()
    notes: dict[str, Note] = {
        f"{name}_{field}": round(getattr(of, field), 3)
        for name, of in figures.items()
        for field in ("per_core_s", "capacity_per_s", "rate_per_s", "added_p50_ms", "added_p99_ms", "p50_ms", "errors")
    }
    notes |= {"nginx": version(["nginx", "-v"]), "haproxy": version(["haproxy", "-v"])}
    if options.litellm is not None:
        notes["litellm"] = version([str(options.litellm), "--version"])
    notes |= {name: round(value, 2) for name, value in many.items()}
    return write_result("proxy", measures(figures, many), notes)


def measures(figures: dict[str, Figures], many: dict[str, float]) -> list[Measure]:
    """What has a floor."""
    ours = figures["nearsay"]
    found = [
        Measure("added_p50_ms", ours.added_p50_ms, "ms", 1.0, 0.5, "lower"),
        Measure("added_p99_ms", ours.added_p99_ms, "ms", 4.0, 2.0, "lower"),
        Measure("errors_at_5000_connections", many["errors_5000"], "", 0, 0, "lower"),
    ]
    if (theirs := figures.get("litellm")) is not None:
        ratio = ours.per_core_s / theirs.per_core_s
        found.append(Measure("per_core_over_litellm", ratio, "x", 5.0, 10.0, "higher"))
        added = ours.added_p50_ms / theirs.added_p50_ms
        found.append(Measure("added_p50_over_litellm", added, "x", 1.0, 0.1, "lower"))
    return found


async def _figures(rival: Rival, upstream: Upstream, seconds: float, tasks: Tasks) -> Figures:
    connections = await connect(rival.port, OPEN_CONNECTIONS)
    await _closed_loop(connections[:CLOSED_CONNECTIONS], rival.request, WARM_UP_S)
    spent = cpu_seconds(rival.pid)
    begin = time.perf_counter()
    answered = await _closed_loop(connections[:CLOSED_CONNECTIONS], rival.request, seconds)
    capacity_per_s = answered / (time.perf_counter() - begin)
    per_core_s = answered / (cpu_seconds(rival.pid) - spent)
    rate_per_s = SHARE_OF_CAPACITY * capacity_per_s
    through, errors = await open_loop(connections, rival.request, rate_per_s, seconds, tasks)
    close(connections)
    connections = await connect(upstream.http, OPEN_CONNECTIONS)
    direct, _ = await open_loop(connections, NATIVE, rate_per_s, seconds, tasks)
    close(connections)
    found = Figures(
        capacity_per_s=capacity_per_s,
        per_core_s=per_core_s,
        rate_per_s=rate_per_s,
        p50_ms=_p(through, 50),
        p99_ms=_p(through, 99),
        direct_p50_ms=_p(direct, 50),
        direct_p99_ms=_p(direct, 99),
        errors=errors,
    )
    print(
        f"{rival.name:8} {per_core_s:8,.0f} requests/s and core; at {rate_per_s:,.0f}/s adds "
        f"{found.added_p50_ms:.2f} ms p50, {found.added_p99_ms:.2f} ms p99; {errors} errors",
        file=sys.stderr,
    )
    return found


async def _many(rival: Rival) -> dict[str, float]:
    """A request on each of 5,000 connections, all open at once, and what one costs in memory."""
    before = resident_bytes(rival.pid)
    connections = await connect(rival.port, MANY_CONNECTIONS)
    idle = resident_bytes(rival.pid)
    errors = 0
    begin = time.perf_counter()
    for start in range(0, MANY_CONNECTIONS, OPEN_CONNECTIONS):
        part = connections[start : start + OPEN_CONNECTIONS]
        answers = await asyncio.gather(*(each.post(rival.request) for each in part), return_exceptions=True)
        errors += sum(not isinstance(answer, bytes) for answer in answers)
    seconds = time.perf_counter() - begin
    after = resident_bytes(rival.pid)
    close(connections)
    kib = 1024 * MANY_CONNECTIONS
    return {
        "errors_5000": errors,
        "seconds_5000": seconds,
        "idle_kib_per_connection": (idle - before) / kib,
        "used_kib_per_connection": (after - before) / kib,
    }


async def _closed_loop(connections: list[Connection], request: bytes, seconds: float) -> int:
    """How many were answered. Raises ResponseError."""
    end = time.perf_counter() + seconds

    async def client(connection: Connection) -> int:
        count = 0
        while time.perf_counter() < end:
            await connection.post(request)
            count += 1
        return count

    return sum(await asyncio.gather(*map(client, connections)))


async def open_loop(
    connections: list[Connection], request: bytes, rate_per_s: float, seconds: float, tasks: Tasks
) -> tuple[list[float], int]:
    """Seconds from due to answered, and the number of errors."""
    idle, waiting = deque(connections), deque[float]()
    latencies: list[float] = []
    errors = 0
    running: set[asyncio.Task[None]] = set()
    start = time.perf_counter()

    async def serve(connection: Connection, due: float) -> None:
        nonlocal errors
        while True:
            try:
                await connection.post(request)
            except ResponseError:
                errors += 1
                return
            latencies.append(time.perf_counter() - start - due)
            if not waiting:
                return idle.append(connection)
            due = waiting.popleft()

    for due in arrivals("poisson", rate_per_s, seconds, random.Random(1)):
        if (left := due - (time.perf_counter() - start)) > 0:
            await asyncio.sleep(left)
        if idle:
            task = tasks.spawn(serve(idle.popleft(), due), name="open loop")
            running.add(task)
            task.add_done_callback(running.discard)
        else:
            waiting.append(due)
    await asyncio.gather(*running)
    return latencies, errors


async def connect(port: int, count: int) -> list[Connection]:
    """Open connections, some at a time."""
    opened: list[Connection] = []
    for start in range(0, count, CONNECT_AT_ONCE):
        wave: list[Awaitable[Connection]] = [
            Connection.open(port) for _ in range(start, min(count, start + CONNECT_AT_ONCE))
        ]
        opened += await asyncio.gather(*wave)
    return opened


def close(connections: list[Connection]) -> None:
    """Close them."""
    for connection in connections:
        connection.close()


@asynccontextmanager
async def echo() -> AsyncIterator[Upstream]:
    """The echo inherits this process's core."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.echo_edge", stdout=PIPE)
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), ECHO_START_S))
        yield Upstream(link=ready["port"], http=ready["admin_port"])
    finally:
        process.terminate()
        await process.wait()


def _p(seconds: list[float], q: float) -> float:
    return percentile(sorted(seconds), q) * 1e3 if seconds else math.nan
