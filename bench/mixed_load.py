"""Case mixed_load: what saturating batch work costs interactive work, and interactive work batch work.

Real processes, once with `tier: origin`, once with `tier: edge`. Interactive requests come in an open loop with seeded
Poisson arrivals, so many that an idle service would be busy with them for `duty` of the time; latency counts from when
a request was due. Batch requests of many texts come in a closed loop of more sentences than the service has room for.
Arms alternate in short slices: interactive alone, both, batch alone, and, in every third round, interactive beside a
process that only takes a core: on two cores, that is what a neighbour costs before any queue does. The same arrivals
and texts in every arm of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from bench.edge_path import client_cost
from bench.report import Measure, Note, write_result
from bench.rivals import cpu_seconds
from bench.sentences import long_sentences, sentences
from bench.services import Services, stack
from nearsay.cli.stack import ConfigValue, StackOptions
from nearsay.client import AsyncClient, Result
from nearsay.lab.load import LoadPlan, offer
from nearsay.lab.report import Sample, percentile
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import STAGES, Priority, ServedTier

P99_FLOOR, P99_TARGET = 2.0, 1.5
BATCH_FLOOR, BATCH_TARGET = 0.75, 0.85
WARM_UP = 50
BULK_TEXTS, BULK_IN_FLIGHT = 16, 8  # sentences of a batch request, batch requests at once: twice an origin's slots
ALONE_SHARE = 1 / 3  # of a slice: throughput is steadier than a percentile
CONTENDED_EVERY = 3  # rounds
SETTLE_S = 0.3
RAMP_TIMEOUT_S = 60.0
DEADLINE_MS = 60_000.0

Arm = Literal["idle", "loaded", "alone", "contended"]


class Slices(msgspec.Struct):
    """All slices of one arm. `cpu_s`: processor time by process."""

    samples: list[Sample] = []
    seconds: float = 0.0
    bulk_chars: int = 0
    bulk_texts: int = 0
    cpu_s: dict[str, float] = {}

    def latencies_ms(self) -> list[float]:
        """Of every request, from due, ascending."""
        return sorted((sample.ended_s - sample.due_s) * 1e3 for sample in self.samples)

    def p(self, percent: float) -> float:
        return percentile(self.latencies_ms(), percent)

    def stage(self, stage: str, percent: float) -> float:
        return percentile(sorted(sample.stages_ms.get(stage, 0.0) for sample in self.samples), percent)


class Bulk:
    """A closed loop of batch requests, which counts what came back."""

    def __init__(self, client: AsyncClient, texts: Sequence[str], pair: str, tier: ServedTier) -> None:
        self.texts = self.chars = 0
        self._client = client
        self._left = itertools.cycle(texts)
        self._pair = pair
        self._tier = tier

    @asynccontextmanager
    async def running(self, tasks: Tasks) -> AsyncIterator[None]:
        """Begins when as many requests have come back as there are at once: slots and queues are full."""
        full = asyncio.Event()
        workers = [tasks.spawn(self._worker(full), name=f"bulk {number}") for number in range(BULK_IN_FLIGHT)]
        self.texts = 0
        try:
            await asyncio.wait_for(full.wait(), RAMP_TIMEOUT_S)
            yield
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await asyncio.sleep(SETTLE_S)

    async def _worker(self, full: asyncio.Event) -> None:
        while True:
            texts = list(itertools.islice(self._left, BULK_TEXTS))
            await _ask(self._client, texts, self._pair, self._tier, "batch")
            self.texts += len(texts)
            self.chars += sum(map(len, texts))
            if self.texts >= BULK_TEXTS * BULK_IN_FLIGHT:
                full.set()


class Run:
    """One tier of one running stack."""

    def __init__(
        self, options: argparse.Namespace, tier: ServedTier, services: Services, client: AsyncClient, tasks: Tasks
    ) -> None:
        self.arms: dict[Arm, Slices] = {}
        self.tier = tier
        self.rate_per_s = 0.0
        self.idle_service_ms = 0.0
        self._options = options
        self._pids = {**services.pids, "client": os.getpid()}
        self._client = client
        self._tasks = tasks
        self._texts, self.corpus = sentences(options.corpora, options.pair, 2 * WARM_UP + options.requests)
        bulk_texts, self.bulk_corpus = long_sentences(options.corpora, options.pair)
        self._bulk = Bulk(client, bulk_texts, options.pair, tier)

    async def measure(self) -> None:
        """All rounds."""
        seconds = [await self._timed(text) for text in self._texts[: 2 * WARM_UP]][WARM_UP:]
        self.idle_service_ms = math.fsum(seconds) / len(seconds) * 1e3
        self.rate_per_s = self._options.duty / (self.idle_service_ms / 1e3)
        rounds = math.ceil(self._options.requests / (self.rate_per_s * self._options.slice_s))
        for number in range(rounds):
            print(f"{self.tier}: round {number + 1} of {rounds}", file=sys.stderr)
            for arm in _order(number):
                await self._slice(arm, number)

    async def _slice(self, arm: Arm, number: int) -> None:
        slices = self.arms.setdefault(arm, Slices())
        if arm == "alone":
            async with self._bulk.running(self._tasks):
                with self._counted(slices):
                    await asyncio.sleep(self._options.slice_s * ALONE_SHARE)
        elif arm == "loaded":
            async with self._bulk.running(self._tasks):
                with self._counted(slices):
                    slices.samples += await self._offer(number)
        elif arm == "contended":
            async with _burner():
                slices.samples += await self._offer(number)
        else:
            with self._counted(slices):
                slices.samples += await self._offer(number)

    async def _offer(self, number: int) -> list[Sample]:
        plan = LoadPlan(
            rate_per_s=self.rate_per_s,
            duration_s=self._options.slice_s,
            seed=self._options.seed + number,
            deadline_ms=DEADLINE_MS,
        )
        first = round(number * self.rate_per_s * self._options.slice_s)

        async def send(index: int) -> Result:
            return await self._interactive(self._texts[(first + index) % len(self._texts)])

        samples = await offer(plan, send, self._tasks)
        if failed := [sample.code for sample in samples if sample.code != "ok"]:
            raise SystemExit(f"{len(failed)} interactive requests failed: {failed[0]}")
        return samples

    @contextmanager
    def _counted(self, slices: Slices) -> Iterator[None]:
        chars, texts, began = self._bulk.chars, self._bulk.texts, time.perf_counter()
        cpu = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        yield
        slices.seconds += time.perf_counter() - began
        slices.bulk_chars += self._bulk.chars - chars
        slices.bulk_texts += self._bulk.texts - texts
        for name, pid in self._pids.items():
            slices.cpu_s[name] = slices.cpu_s.get(name, 0.0) + cpu_seconds(pid) - cpu[name]

    async def _interactive(self, text: str) -> Result:
        return await _ask(self._client, text, self._options.pair, self.tier, "interactive")

    async def _timed(self, text: str) -> float:
        began = time.perf_counter()
        await self._interactive(text)
        return time.perf_counter() - began


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/ and flores200/; default: our own sentences")
    parser.add_argument("--models", type=Path, action="append", default=[], help="folder of models, looked at first")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--tiers", nargs="+", choices=("origin", "edge"), default=("origin", "edge"))
    parser.add_argument("--requests", type=int, default=1000, help="interactive ones of each arm, at least")
    parser.add_argument("--slice-s", type=float, default=15.0)
    parser.add_argument("--duty", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)


def main(options: argparse.Namespace) -> Path:
    """Measure and write the result."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Path:
    edge: dict[str, ConfigValue] = {"threads": 1, "device": "cpu", "pairs": [options.pair]}
    origin = {**edge, "encoder_cache_mb": 0}  # as if no text ever came twice
    stack_options = StackOptions(
        port=0, models=tuple(options.models), with_origin=True, overrides={"origin": origin, "edge": edge}
    )
    notes: dict[str, Note] = {"pair": options.pair, "load_before": os.getloadavg()[0]}
    measures: list[Measure] = []
    tasks = Tasks()
    try:
        async with stack(stack_options, tasks) as services, AsyncClient(services.url, transport="link") as client:
            for tier in options.tiers:
                run = Run(options, tier, services, client, tasks)
                await run.measure()
                measures += _measures(run)
                notes |= _notes(run)
        texts, _ = sentences(options.corpora, options.pair, 500)
        notes |= await client_cost(options.pair, texts, tasks)
    finally:
        await tasks.close()
    return write_result("mixed_load", measures, notes)


def _order(number: int) -> list[Arm]:
    """The arms of a round, in turning order."""
    arms: tuple[Arm, ...] = ("idle", "loaded", "alone")
    extra: tuple[Arm, ...] = ("contended",) if number % CONTENDED_EVERY == 0 else ()
    return [*arms[number % 3 :], *arms[: number % 3], *extra]


def _measures(run: Run) -> list[Measure]:
    idle, loaded, alone = run.arms["idle"], run.arms["loaded"], run.arms["alone"]
    ratio = loaded.p(99) / idle.p(99)
    kept = (loaded.bulk_chars / loaded.seconds) / (alone.bulk_chars / alone.seconds)
    return [
        Measure(f"{run.tier}_p99_ratio", ratio, "x idle", P99_FLOOR, P99_TARGET, "lower"),
        Measure(f"{run.tier}_batch_ratio", kept, "x batch alone", BATCH_FLOOR, BATCH_TARGET, "higher"),
    ]


def _notes(run: Run) -> dict[str, Note]:
    notes: dict[str, Note] = {
        "corpus": run.corpus,
        "batch_corpus": run.bulk_corpus,
        "rate_per_s": run.rate_per_s,
        "idle_service_ms": run.idle_service_ms,
    }
    for arm, slices in run.arms.items():
        if slices.samples:
            notes[f"{arm}_requests"] = len(slices.samples)
            notes |= {f"{arm}_p{percent}_ms": slices.p(percent) for percent in (50, 95, 99)}
            notes[f"{arm}_client_late_p99_ms"] = percentile(
                sorted((sample.sent_s - sample.due_s) * 1e3 for sample in slices.samples), 99
            )
            notes |= {f"{arm}_{stage}_p99_ms": p for stage in STAGES if (p := slices.stage(stage, 99)) > 0.5}
        if slices.bulk_texts:
            notes[f"{arm}_batch_sentences_per_s"] = slices.bulk_texts / slices.seconds
        notes |= {f"{arm}_{name}_cores": used / slices.seconds for name, used in slices.cpu_s.items()}
    notes["core_taken_p99_ratio"] = run.arms["contended"].p(99) / run.arms["idle"].p(99)
    return {f"{run.tier}_{name}": note for name, note in notes.items()}


async def _ask(client: AsyncClient, text: str | list[str], pair: str, tier: ServedTier, priority: Priority) -> Result:
    source, target = pair.split("-")
    return await client.translate(text, source, target, tier=tier, priority=priority, deadline_ms=DEADLINE_MS)


@asynccontextmanager
async def _burner() -> AsyncIterator[None]:
    """A process that does nothing but take a core."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        yield
    finally:
        process.kill()
        await process.wait()
