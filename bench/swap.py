"""Case swap: what a swap of the origin's model costs those who translate meanwhile, and the memory that it leaves.

One origin in this process, with its engine thread, its door and a link in memory; sentences leave at fixed instants, an
open loop. The yardstick is the same loop while nothing is swapped, before and between the swaps.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.report import Measure, Note, write_result
from bench.sentences import sentences
from nearsay.lab.report import percentile
from nearsay.runtime.link import LinkLimits, Peer, Transport, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.text.registry import Registry, load_vocabs
from nearsay.wire.messages import Finished, Hello, Submit, pack_ids
from origin.app import Origin, build
from origin.config import OriginConfig

PAIR = "en-de"
STATM = Path("/proc/self/statm")
PAGE_BYTES = 4096
SETTLE_S = 0.5
DUTY = 0.25  # of one sentence after another


class Sample(msgspec.Struct, frozen=True):
    """One request: when it left, how long it took, which model answered; none when it failed."""

    left: float
    seconds: float
    model: str


class Loop:
    """Requests that leave every `every_s`, whatever became of earlier ones."""

    def __init__(self, peer: Peer, sources: Sequence[bytes], tasks: Tasks) -> None:
        self.samples: list[Sample] = []
        self._peer = peer
        self._sources = sources
        self._tasks = tasks

    async def run(self, every_s: float) -> None:
        """For ever."""
        due = time.perf_counter()
        for number in range(1 << 60):
            self._tasks.spawn(self.one(self._sources[number % len(self._sources)]), name="request")
            due += every_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def one(self, source: bytes) -> float:
        """Translate one sentence by the model that is served now; seconds that it took."""
        peer, left = self._peer, time.perf_counter()
        assert peer.hello is not None
        info = ((peer.load.models if peer.load is not None else ()) or peer.hello.models)[0]
        submit = Submit("", info.name, info.src_vocab_hash, info.trg_vocab_hash, source, budget_ms=60_000.0)
        model = ""
        try:
            answer = await (await peer.open(submit)).receive()
            model = answer.model if isinstance(answer, Finished) else ""
        finally:
            self.samples.append(Sample(left, time.perf_counter() - left, model))
        return self.samples[-1].seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/; without it our own sentences")
    parser.add_argument("--swaps", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0, help="between two swaps")


def main(options: argparse.Namespace) -> Path:
    measures, notes = asyncio.run(_measure(options))
    return write_result("swap", measures, notes)


async def _measure(options: argparse.Namespace) -> tuple[list[Measure], dict[str, Note]]:
    texts, corpus = sentences(options.corpora, PAIR, 200)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / PAIR
        _publish(folder, 1)
        vocab, _ = load_vocabs(Registry.discover([folder], defaults=False).entries[0])
        sources = [pack_ids([*vocab.encode(text), vocab.eos_id]) for text in texts]
        config = OriginConfig(models=(Path(scratch),), pairs=(PAIR,), swap_grace_s=0.5)
        async with _serving(config) as (origin, peer, tasks):
            loop = Loop(peer, sources, tasks)
            alone_s = sorted([await loop.one(source) for source in sources[:20]])[10]
            loop.samples.clear()
            running = tasks.spawn(loop.run(alone_s / DUTY), name="load")
            rss, spans = [_rss()], list[tuple[float, float]]()
            for version in range(2, options.swaps + 2):
                await asyncio.sleep(options.seconds)
                _publish(folder, version)
                began = time.perf_counter()
                report = await origin.models.reload()
                assert report.good, report
                await _drained(origin)
                await asyncio.sleep(SETTLE_S)
                spans.append((began, time.perf_counter()))
                rss.append(_rss())
            await asyncio.sleep(options.seconds)
            running.cancel()
            await asyncio.sleep(SETTLE_S)
    return _results(loop.samples, spans, rss, corpus)


def _results(
    samples: Sequence[Sample], spans: Sequence[tuple[float, float]], rss: Sequence[int], corpus: str
) -> tuple[list[Measure], dict[str, Note]]:
    swapping, calm = list[float](), list[float]()
    for sample in sorted(samples, key=lambda sample: sample.seconds):
        in_swap = any(began <= sample.left <= ended for began, ended in spans)
        (swapping if in_swap else calm).append(sample.seconds)
    calm_p95, swap_p95 = percentile(calm, 95), percentile(swapping, 95)
    measures = [
        Measure("failed_requests", float(sum(not sample.model for sample in samples)), "requests", 0.0, 0.0, "lower"),
        Measure("p95_while_swapping_over_calm", swap_p95 / calm_p95, "x", 4.0, 2.0, "lower"),
        Measure("memory_after_over_first_swap", rss[-1] / rss[1], "x", 1.1, 1.02, "lower"),
    ]
    notes: dict[str, Note] = {
        "sentences": corpus,
        "swaps": len(spans),
        "requests": len(samples),
        "requests_while_swapping": len(swapping),
        "calm_p50_ms": round(percentile(calm, 50) * 1e3, 2),
        "calm_p95_ms": round(calm_p95 * 1e3, 2),
        "swapping_p50_ms": round(percentile(swapping, 50) * 1e3, 2),
        "swapping_p95_ms": round(swap_p95 * 1e3, 2),
        "swap_s": round(sum(ended - began for began, ended in spans) / len(spans) - SETTLE_S, 2),
        "memory_before_mib": rss[0] >> 20,
        "memory_after_first_swap_mib": rss[1] >> 20,
        "memory_after_last_swap_mib": rss[-1] >> 20,
    }
    return measures, notes


@asynccontextmanager
async def _serving(config: OriginConfig) -> AsyncIterator[tuple[Origin, Peer, Tasks]]:
    """An origin and a link to it in memory."""
    origin, tasks = build(config), Tasks()

    async def connect(_: str) -> Transport:
        near, far = memory_pair()
        tasks.spawn(origin.links.serve(far), name="link")
        return near

    await origin.start()
    origin.lifecycle.move("ready")
    hello = Hello("edge", models=origin.models.infos())
    peer = Peer("memory", hello=lambda: hello, tasks=tasks, limits=LinkLimits(), clock=time.monotonic, connect=connect)
    up = asyncio.Event()
    peer.on_change(up.set)
    await peer.start()
    await up.wait()
    try:
        yield origin, peer, tasks
    finally:
        await peer.close()
        await origin.stop()
        await tasks.close()


async def _drained(origin: Origin) -> None:
    while any(model.standing == "draining" for model in origin.models.report().models):  # noqa: ASYNC110 (a thread's)
        await asyncio.sleep(0.01)


def _publish(folder: Path, version: int) -> None:
    """The origin's model of the pair, under a version of its own."""
    source, target = PAIR.split("-")
    entry = Registry.discover().find(source, target, "origin")
    assert entry is not None, f"no origin model for {PAIR}"
    shutil.copytree(entry.path, folder / "teacher", dirs_exist_ok=True)
    for file, name in ((entry.src_vocab, "source.spm"), (entry.trg_vocab, "target.spm")):
        shutil.copyfile(file, folder / name)
    (folder / "model.toml").write_text(
        f'source = "{source}"\ntarget = "{target}"\n[vocab]\nsource = "source.spm"\ntarget = "target.spm"\n'
        f'[origin]\nid = "{PAIR}-swapped"\nversion = "{version}"\nengine = "{entry.engine}"\npath = "teacher"\n'
    )


def _rss() -> int:
    return int(STATM.read_text().split()[1]) * PAGE_BYTES
