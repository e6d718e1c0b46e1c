"""A whole edge worker in memory, on virtual time: fake engines in it, fake origins behind it, a client in front."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge_worker.app import Edge, build
from edge_worker.config import EdgeConfig
from nearsay.runtime.link import LinkLimits, LinkServer, Peer, Stream, Transport, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.registry import Registry
from nearsay.text.vocab import Vocab, vocab_hash
from nearsay.wire.messages import (
    Finished,
    Hello,
    LoadReport,
    Message,
    ModelInfo,
    ServedTier,
    Submit,
    Tokens,
    Translate,
    Translated,
    Update,
    pack_ids,
    unpack_ids,
)
from tests.kit.fake_engine import FakeEngine
from tests.kit.tiny_vocab import SENTENCES, make_tiny_vocab

T = TypeVar("T")
Script = Callable[[Stream, Submit], Awaitable[None]]
RUN_S = 0.010  # what a batch of the fake engine takes
STEP_S = 0.002  # what a token of the fake origin takes


def now() -> float:
    """The running loop's time: virtual under `nearsay.lab.virtual_loop.run`."""
    return asyncio.get_running_loop().time()


def entry(
    folder: Path, tier: ServedTier, *, source: str = "en", target: str = "de", vocab: str = "v.spm", version: str = "1"
) -> ModelEntry:
    """A model of which only the vocabulary is real."""
    path = folder / vocab
    if not path.exists():
        make_tiny_vocab(path, sentences=SENTENCES if vocab == "v.spm" else SENTENCES[:6])
    digest = vocab_hash(path)
    return ModelEntry(
        id=f"{source}-{target}-{tier}",
        version=version,
        source=source,
        target=target,
        tier=tier,
        engine="ctranslate2" if tier == "edge" else "nearsay",
        path=folder,
        src_vocab=path,
        trg_vocab=path,
        src_vocab_hash=digest,
        trg_vocab_hash=digest,
    )


class InlineRun:
    """`Run` without a thread: the work is done at once, and then time passes."""

    def __init__(self, run_s: float = RUN_S) -> None:
        self.run_s = run_s

    async def __call__(self, work: Callable[[], T], /) -> T:
        result = work()
        await asyncio.sleep(self.run_s)
        return result


async def reverse(stream: Stream, submit: Submit) -> None:
    """The fake origin's translation: the source's ids in reverse order, one a step."""
    ids = list(reversed(unpack_ids(submit.src_ids)[:-1]))
    for token in ids:
        await asyncio.sleep(STEP_S)
        if submit.stream:
            await stream.send(Tokens(pack_ids([token])))
    decode_ms = len(ids) * STEP_S * 1000
    await stream.finish(finished(ids, submit, {"origin_queue": 0.0, "encode": 0.0, "decode": decode_ms}))


def finished(ids: Sequence[int], submit: Submit, stages_ms: dict[str, float] | None = None, **fields: Any) -> Finished:
    """A final message of an origin."""
    fields = {"finish_reason": "stop", "model": submit.model} | fields
    stages_ms = stages_ms or {}
    return Finished(pack_ids(ids), stages_ms=stages_ms, accounted_ms=sum(stages_ms.values()), **fields)


async def silence(stream: Stream, submit: Submit) -> None:
    """Never answer."""
    await asyncio.Event().wait()


class FakeOrigin:
    """A scripted origin. `submits` are all sequences that came, `cancelled` counts those that were given up."""

    def __init__(self, models: Sequence[ModelInfo], script: Script = reverse) -> None:
        self.script = script
        self.submits: list[Submit] = []
        self.cancelled = 0
        self.up = True
        self._links: list[Transport] = []
        self._tasks = Tasks()
        self.server = LinkServer(
            hello=lambda: Hello("origin", models=tuple(models)),
            handler=self._serve,
            tasks=self._tasks,
            limits=LinkLimits(),
            clock=now,
        )

    async def connect(self) -> Transport:
        """A new link in memory. Raises ConnectionError while it is down."""
        if not self.up:
            raise ConnectionError("down")
        near, far = memory_pair()
        self._links.append(far)
        self._tasks.spawn(self.server.serve(far), name="fake origin link")
        return near

    def report(self, **fields: Any) -> None:
        """Send a load report."""
        self.server.publish(LoadReport("ready", **fields))

    async def fail(self) -> None:
        """Break every link and refuse new ones, as a killed process does."""
        self.up = False
        for link in self._links:
            await link.close()

    async def close(self) -> None:
        await self._tasks.close()

    async def _serve(self, stream: Stream) -> None:
        assert isinstance(stream.message, Submit)
        self.submits.append(stream.message)
        try:
            await self.script(stream, stream.message)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass
class Room:
    """`peer` is a client of `edge`, as a proxy is. `disk`: what the edge finds when it looks for models. `engines`: the
    latest of each pair, `opened`: all that there ever were."""

    edge: Edge
    peer: Peer
    origins: list[FakeOrigin]
    engines: dict[str, FakeEngine]
    tasks: Tasks
    vocab: Vocab
    updates: list[Update] = field(default_factory=list)
    disk: list[ModelEntry] = field(default_factory=list)
    opened: list[FakeEngine] = field(default_factory=list)

    async def open(self, *texts: str, **fields: Any) -> Stream:
        fields = {"source": "en", "target": "de"} | fields
        return await self.peer.open(Translate("r1", texts, **fields))

    async def translate(self, *texts: str, **fields: Any) -> Translated:
        """The final answer; the updates before it go to `updates`. Raises what the edge rejects with."""
        self.updates = []
        answer: Message | None = None
        async for answer in await self.open(*texts, **fields):
            if isinstance(answer, Update):
                self.updates.append(answer)
        assert isinstance(answer, Translated)
        return answer

    async def text(self, text: str, **fields: Any) -> str:
        return (await self.translate(text, **fields)).translations[0].text

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Let virtual time pass until `condition` holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.001)

    def reversed_ids(self, text: str) -> str:
        """What id engines and origins of this room make of a text."""
        return self.vocab.decode(list(reversed(self.vocab.encode(text))))


@asynccontextmanager
async def edge_room(
    folder: Path,
    *,
    entries: Sequence[ModelEntry] | None = None,
    engine: Callable[[ModelEntry], FakeEngine] | None = None,
    origins: int = 0,
    origins_up: bool = True,
    origin_models: Sequence[ModelEntry] | None = None,
    script: Script = reverse,
    config: dict[str, Any] | None = None,
    run_s: float = RUN_S,
    limits: LinkLimits | None = None,
) -> AsyncIterator[Room]:
    """Run an edge with `origins` fake origins; `entries` default to one en-de model in each tier that is there."""
    if entries is None:
        entries = [entry(folder, "edge"), *([entry(folder, "origin")] if origins else [])]
    if origin_models is None:
        origin_models = [each for each in entries if each.tier == "origin"]
    entries = list(entries)
    engines: dict[str, FakeEngine] = {}
    opened: list[FakeEngine] = []

    def open_engine(each: ModelEntry) -> FakeEngine:
        engines[each.pair] = engine(each) if engine else FakeEngine(model=each.name)
        opened.append(engines[each.pair])
        return engines[each.pair]

    fakes = {f"ws://origin-{n}/link": FakeOrigin([e.info() for e in origin_models], script) for n in range(origins)}
    for fake in fakes.values():
        fake.up = origins_up
    edge = build(
        msgspec.convert({"origins": list(fakes), **(config or {})}, EdgeConfig),
        discover=lambda: Registry(entries),
        open_engine=open_engine,
        new_run=lambda _, background=False: InlineRun(run_s),
        clock=now,
        connect=lambda url: fakes[url].connect(),
        rng=random.Random(1),
        wall=now,
    )
    tasks = Tasks()

    async def connect(_: str) -> Transport:
        near, far = memory_pair()
        tasks.spawn(edge.links.serve(far), name="edge link")
        return near

    peer = Peer(
        "ws://edge/link",
        hello=lambda: Hello("proxy", secret=edge.config.secret),
        tasks=tasks,
        limits=limits or LinkLimits(),
        clock=now,
        connect=connect,
    )
    await edge.start()
    edge.lifecycle.move("ready")
    await peer.start()
    path = entries[0].src_vocab if entries else make_tiny_vocab(folder / "v.spm")
    room = Room(edge, peer, list(fakes.values()), engines, tasks, Vocab.load(path), disk=entries, opened=opened)
    try:
        await room.until(lambda: peer.ready and (not origins_up or all(each.ready for each in edge.origins.peers)))
        for each in engines.values():
            each.batches.clear()  # the warm-up's
        yield room
    finally:
        await peer.close()
        await edge.stop()
        for fake in fakes.values():
            await fake.close()
        await tasks.close()
