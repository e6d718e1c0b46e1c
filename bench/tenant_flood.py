"""Case tenant_flood: what one tenant's flood does to another's latency, in one run.

A calm tenant asks at a steady rate, in an open loop. Beside it another one first uses what its limits allow, then asks
for ten times that. Both arms take turns; the ratio is of the calm one's 99th percentiles. The proxy has core 0, the
clients and the echo behind it share core 1, as in case proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

from bench.lean_http import Framer, request_bytes
from bench.proxy import CLIENT_CPU, PROXY_CPU, close, connect, echo, open_loop
from bench.report import Measure, Note, write_result
from bench.rivals import Upstream
from nearsay.cli.stack import toml
from nearsay.lab.report import percentile
from nearsay.lab.schedule import arrivals
from nearsay.runtime.child import Child
from nearsay.runtime.tasks import Tasks

CALM_PER_S = 100.0
LIMIT_PER_S = 40.0
FLOOD = 10.0  # times what the limit allows
CONNECTIONS = 50
ROUNDS = 4
START_TIMEOUT_S = 60.0
ROUTING = """[regions.here]
edges = ["ws://127.0.0.1:{port}/link"]
[tenants.calm]
keys = ["{calm}"]
[tenants.loud]
keys = ["{loud}"]
requests_per_s = {limit}
burst_s = 1.0
"""
BODY = json.dumps({"text": "Good morning, how are you?", "source": "en", "target": "de"}).encode()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round")


def main(options: argparse.Namespace) -> Path:
    """Measure and write the result."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CLIENT_CPU})
    measures, notes = asyncio.run(_measure(options.seconds))
    os.sched_setaffinity(0, cpus)
    return write_result("tenant_flood", measures, notes)


async def _measure(seconds: float) -> tuple[list[Measure], dict[str, Note]]:
    tasks = Tasks()
    calm: dict[bool, list[float]] = {False: [], True: []}
    answers: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
    errors = 0
    try:
        with tempfile.TemporaryDirectory(prefix="nearsay-bench-") as folder:
            async with echo() as upstream, _proxy(Path(folder), upstream, tasks) as port:
                await _beside(port, 1.0, LIMIT_PER_S, tasks, Counter())  # warm
                for turn in range(2 * ROUNDS):
                    flooded = turn % 2 == 1
                    rate_per_s = LIMIT_PER_S * (FLOOD if flooded else 1.0)
                    took, failed = await _beside(port, seconds, rate_per_s, tasks, answers[flooded])
                    calm[flooded] += took
                    errors += failed
    finally:
        await tasks.close()
    before, flooded_p99 = (percentile(sorted(calm[arm]), 0.99) * 1e3 for arm in (False, True))
    measures = [
        Measure("calm_p99_ratio", flooded_p99 / before, "x", 1.5, 1.2, "lower"),
        Measure("calm_failed", errors, "", 0, 0, "lower"),
    ]
    notes: dict[str, Note] = {
        "calm_p99_before_ms": round(before, 3),
        "calm_p99_flooded_ms": round(flooded_p99, 3),
        "calm_requests": len(calm[True]),
        "loud_answered": answers[True][200],
        "loud_refused": answers[True][429],
    }
    return measures, notes


async def _beside(
    port: int, seconds: float, loud_per_s: float, tasks: Tasks, answers: Counter[int]
) -> tuple[list[float], int]:
    """The calm one's latencies and errors beside the loud one."""
    connections = await connect(port, CONNECTIONS)
    loud = tasks.spawn(_flood(port, loud_per_s, seconds, answers), name="loud")
    found = await open_loop(connections, _request("calm"), CALM_PER_S, seconds, tasks)
    await loud
    close(connections)
    return found


async def _flood(port: int, rate_per_s: float, seconds: float, answers: Counter[int]) -> None:
    """Requests when they are due, whatever became of those before."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: _Loud(answers), "127.0.0.1", port) for _ in range(CONNECTIONS)]
    start, request = time.perf_counter(), _request("loud")
    for number, due in enumerate(arrivals("poisson", rate_per_s, seconds, random.Random(2))):
        if (left := due - (time.perf_counter() - start)) > 0:
            await asyncio.sleep(left)
        made[number % CONNECTIONS][0].write(request)
    for transport, _ in made:
        transport.close()


class _Loud(asyncio.Protocol):
    """Counts answers by their status."""

    def __init__(self, answers: Counter[int]) -> None:
        self._answers = answers
        self._framer = Framer()

    def data_received(self, data: bytes) -> None:
        for head, _ in self._framer.feed(data):
            self._answers[int(head.split(b" ", 2)[1])] += 1


def _request(tenant: str) -> bytes:
    return request_bytes("/v1/translate", BODY, (("Authorization", f"Bearer {tenant}"),))


@asynccontextmanager
async def _proxy(folder: Path, upstream: Upstream, tasks: Tasks) -> AsyncIterator[int]:
    routing, config = folder / "routing.toml", folder / "proxy.toml"
    hashes = {name: "sha256:" + sha256(name.encode()).hexdigest() for name in ("calm", "loud")}
    routing.write_text(ROUTING.format(port=upstream.link, limit=LIMIT_PER_S, **hashes))
    config.write_text(toml({"port": 0, "admin_port": 0, "routing": str(routing), "stop_with_stdin": True}))
    command = ("taskset", "-c", str(PROXY_CPU), sys.executable, "-m", "proxy", "--config", str(config))
    child = Child("proxy", command, tasks)
    ready = await child.start(START_TIMEOUT_S)
    try:
        yield ready.port
    finally:
        await child.stop(5.0)
