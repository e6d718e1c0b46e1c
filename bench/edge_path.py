"""Case edge_path: what proxy and edge worker cost on top of the model, the raw engine measured beside them in one run.

Peer: the same student, through the same `LocalEngine`, called directly in this process, one engine thread each.
Latency: each sentence goes through the raw engine, the SDK's link and HTTP, one after the other, in turning order.
Throughput: 32 closed-loop clients against batches of 32 in arrival order, in alternating rounds.
The client's own cost is in the figures, and stated: the same client against an echo.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import msgspec

from bench.report import Measure, Note, write_result
from bench.sentences import sentences
from bench.services import child, stack
from nearsay.cli.stack import ConfigValue, StackOptions
from nearsay.client import AsyncClient, Result, TransportName
from nearsay.lab.report import percentile
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalEngine, LocalInput, open_engine
from nearsay.text.registry import Registry, load_vocabs

CLIENTS = 32
WARM_UP = 50
ECHO_REQUESTS = 500
PROXY_STAGES = ("parse", "queue", "link", "render")

Way = Callable[[str], Awaitable[Result]]


class Times(msgspec.Struct):
    """Seconds of each request, by way; and what proxy and link had of each, in ms."""

    raw: list[float] = []
    link: list[float] = []
    http: list[float] = []
    share_ms: list[float] = []
    unaccounted_ms: list[float] = []


class Rates(msgspec.Struct, frozen=True):
    """Sentences a second."""

    raw_per_s: float
    stack_per_s: float


class Raw(msgspec.Struct, frozen=True):
    """The engine called directly: token ids in, token ids out."""

    engine: LocalEngine
    inputs: dict[str, LocalInput]

    def one(self, text: str) -> None:
        self.engine.translate([self.inputs[text]])

    def batches(self, texts: Sequence[str]) -> None:
        """All texts, in batches in arrival order."""
        size = min(CLIENTS, self.engine.batch_max)
        for start in range(0, len(texts), size):
            self.engine.translate([self.inputs[text] for text in texts[start : start + size]])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/tatoeba.PAIR.dev.tsv.gz; default: our own")
    parser.add_argument("--models", type=Path, action="append", default=[], help="folder of models, looked at first")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--sentences", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=6, help="of raw and stack throughput")


def main(options: argparse.Namespace) -> Path:
    """Measure and write the result."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Path:
    texts, corpus = sentences(options.corpora, options.pair, options.sentences)
    raw = _open_raw(options, texts)
    notes: dict[str, Note] = {"pair": options.pair, "model": raw.engine.info.model, "engine": str(raw.engine.info)}
    notes |= {"sentences": len(texts), "corpus": corpus, "clients": CLIENTS, "load_before": os.getloadavg()[0]}
    edge: dict[str, ConfigValue] = {"threads": 1, "device": "cpu", "pairs": [options.pair]}
    stack_options = StackOptions(port=0, models=tuple(options.models), with_origin=False, overrides={"edge": edge})
    tasks = Tasks()
    try:
        async with stack(stack_options, tasks) as services, AsyncClient(services.url, transport="link") as link:
            async with AsyncClient(services.url, transport="http") as http:
                times = await _latencies(raw, _way(link, options.pair), _way(http, options.pair), texts)
            rates = await _rates(raw, _way(link, options.pair), texts, options.rounds)
        notes |= await client_cost(options.pair, texts[:ECHO_REQUESTS], tasks)
    finally:
        await tasks.close()
        raw.engine.close()
    notes |= _context(times, rates)
    return write_result("edge_path", _measures(times, rates), notes)


async def _latencies(raw: Raw, link: Way, http: Way, texts: Sequence[str]) -> Times:
    """One request at a time; the order of the three ways turns with each sentence, so that none is always first."""
    times = Times()

    async def by_raw(text: str) -> None:
        with _timed(times.raw):
            raw.one(text)

    async def by_link(text: str) -> None:
        with _timed(times.link):
            result = await link(text)
        times.share_ms.append(sum(result.stages_ms.get(stage, 0.0) for stage in PROXY_STAGES))
        times.unaccounted_ms.append(result.stages_ms.get("unaccounted", 0.0))

    async def by_http(text: str) -> None:
        with _timed(times.http):
            await http(text)

    ways = (by_raw, by_link, by_http)
    for number, text in enumerate([*texts[:WARM_UP], *texts]):
        if number == WARM_UP:
            times = Times()
        for turn in range(len(ways)):
            await ways[(number + turn) % len(ways)](text)
    return times


async def _rates(raw: Raw, way: Way, texts: Sequence[str], rounds: int) -> Rates:
    """Sentences a second over all rounds; each round takes its share of the sentences both ways."""
    share = len(texts) // rounds
    raw_s, stack_s = list[float](), list[float]()
    for number in range(rounds):
        part = texts[number * share : (number + 1) * share]
        for by_raw in (True, False) if number % 2 else (False, True):
            with _timed(raw_s if by_raw else stack_s):
                if by_raw:
                    raw.batches(part)
                else:
                    await _closed_loop(way, part)
    return Rates(rounds * share / sum(raw_s), rounds * share / sum(stack_s))


async def _closed_loop(way: Way, texts: Sequence[str]) -> None:
    left = iter(texts)

    async def client() -> None:
        for text in left:
            await way(text)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def client_cost(pair: str, texts: Sequence[str], tasks: Tasks) -> dict[str, Note]:
    """The same client against an echo: what is left is the client's own, a socket's and the echo's."""
    costs: dict[str, Note] = {}
    async with child("echo", (sys.executable, "-m", "bench.echo"), tasks) as url:
        for transport in get_args(TransportName):
            if transport == "auto":
                continue
            seconds: list[float] = []
            async with AsyncClient(url, transport=transport) as client:
                way = _way(client, pair)
                for text in texts:
                    with _timed(seconds):
                        await way(text)
            costs[f"client_{transport}_p50_ms"] = _p(50, seconds)
            costs[f"client_{transport}_p99_ms"] = _p(99, seconds)
    return costs


def _measures(times: Times, rates: Rates) -> list[Measure]:
    return [
        Measure("short_p50_ratio", _p(50, times.link) / _p(50, times.raw), "x raw engine", 1.6, 1.2, "lower"),
        Measure("short_p99_ratio", _p(99, times.link) / _p(99, times.raw), "x raw engine", 3.0, 1.5, "lower"),
        Measure("throughput_ratio", rates.stack_per_s / rates.raw_per_s, "x raw engine", 0.7, 0.9, "higher"),
        Measure("proxy_link_p50_ms", percentile(sorted(times.share_ms), 50), "ms", 2.0, 1.0, "lower"),
    ]


def _context(times: Times, rates: Rates) -> dict[str, Note]:
    ways = {"raw": times.raw, "stack_link": times.link, "stack_http": times.http}
    context: dict[str, Note] = {f"{way}_p{q}_ms": _p(q, seconds) for way, seconds in ways.items() for q in (50, 99)}
    context["proxy_link_p99_ms"] = percentile(sorted(times.share_ms), 99)
    context["unaccounted_p95_ms"] = percentile(sorted(times.unaccounted_ms), 95)
    context["raw_sentences_per_s"] = rates.raw_per_s
    context["stack_sentences_per_s"] = rates.stack_per_s
    return context


def _open_raw(options: argparse.Namespace, texts: Sequence[str]) -> Raw:
    """Raises SystemExit without a model."""
    source, target = options.pair.split("-")
    entry = Registry.discover(options.models).find(source, target, "edge")
    if entry is None:
        raise SystemExit(f"no edge model for {options.pair}")
    vocab, _ = load_vocabs(entry)
    inputs = {text: LocalInput(text, tuple(vocab.encode(text))) for text in dict.fromkeys(texts)}
    return Raw(open_engine(entry, device="cpu", threads=1), inputs)


def _way(client: AsyncClient, pair: str) -> Way:
    source, target = pair.split("-")
    return lambda text: client.translate(text, source, target, tier="edge")


@contextmanager
def _timed(into: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


def _p(percent: float, seconds: Sequence[float]) -> float:
    """Percentile in ms."""
    return percentile(sorted(seconds), percent) * 1e3
