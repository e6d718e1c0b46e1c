"""Proxy, edge workers and origins in one process, on virtual time and a seeded network: the services' own code.

Engines are fakes with known answers (an edge reverses words, an origin reverses ids) that take virtual time, so that
every answer can be checked to the letter.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from edge_worker.app import Edge
from edge_worker.app import build as build_edge
from edge_worker.config import EdgeConfig
from edge_worker.core.placement import Policy
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalEngine
from nearsay.text.entry import ModelEntry
from nearsay.text.registry import Registry
from nearsay.text.vocab import Vocab
from nearsay.wire.messages import Translated
from origin.app import Origin
from origin.app import build as build_origin
from origin.config import OriginConfig
from proxy.app import Proxy
from proxy.app import build as build_proxy
from proxy.config import ProxyConfig
from proxy.core.limits import AttemptLimits
from proxy.core.routing_config import DEFAULT_TENANT
from proxy.core.stages import Timeline
from proxy.request import ValidRequest
from proxy.service import Call, Emit
from tests.kit.fake_engine import FakeEngine, reverse_words
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.sim.net import Net

T = TypeVar("T")
EDGE_RUN_S = 0.008
ORIGIN_STEP_S = 0.003


def make_models(folder: Path) -> Path:
    """A pair with an edge and an origin entry. Only the vocabularies are ever read."""
    pair = make_tiny_pair(folder / "en-de")
    weights = pair / "echo"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_bytes(b"never read: the origins of a simulation echo")
    origin = '[origin]\nid = "en-de-echo"\nversion = "1"\nengine = "nearsay"\npath = "echo"\n'
    manifest = pair / "model.toml"
    manifest.write_text(manifest.read_text() + origin)
    return folder


class World:
    """`edges` and `origins` are addressed by `edge_url(n)` and `origin_url(n)` on `net`."""

    def __init__(
        self, models: Path, seed: int, *, edges: int, origins: int, attempts: AttemptLimits | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.registry = Registry.discover([models], defaults=False)
        self.vocab = Vocab.load(models / "en-de" / "target.spm")
        self.tasks = Tasks()
        self.net = Net(self.tasks)
        self.slow: dict[int, float] = {}  # edge number -> factor on its run time
        self.slow_origins: dict[int, float] = {}  # the same of an origin's step
        self._numbers = itertools.count()
        self.origins = [self._origin(number, models) for number in range(origins)]
        self.edges = [self._edge(number, origins) for number in range(edges)]
        attempts = attempts or AttemptLimits()
        config = ProxyConfig(edges=tuple(map(edge_url, range(edges))), port=0, attempts=attempts)
        self.proxy: Proxy = build_proxy(
            config, clock=self.now, connect=self.net.connect, rng=self._fork(), new_id=lambda: "request"
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def local(self, text: str) -> str:
        """What an edge makes of a segment."""
        return reverse_words(text)

    def far(self, text: str) -> str:
        """What an origin makes of a segment."""
        return self.vocab.decode(list(reversed(self.vocab.encode(text))))

    async def translate(self, text: str, *, emit: Emit | None = None, **fields: Any) -> Translated:
        request = ValidRequest(
            texts=(text,),
            source="en",
            target="de",
            tier=fields.get("tier", "auto"),
            priority=fields.get("priority", "interactive"),
            deadline_ms=fields.get("deadline_ms", 10_000.0),
            stream=emit is not None,
            segments=True,
            session="",
            chars=len(text),
        )
        now = self.now()
        call = Call(f"request-{next(self._numbers)}", Timeline(arrived=now, parsed=now))
        call.tenant = fields.get("tenant", DEFAULT_TENANT)
        return await self.proxy.service.translate(request, call, emit)

    async def start(self) -> None:
        for service in (*self.origins, *self.edges, self.proxy):
            await service.start()
            service.lifecycle.move("ready")
        for number, origin in enumerate(self.origins):
            self.tasks.spawn(self._steps(number, origin), name=f"origin {number}")
        await asyncio.sleep(1.0)  # links and first load reports

    async def stop(self) -> None:
        for service in (self.proxy, *self.edges, *self.origins):
            await service.stop()
        await self.tasks.close()

    def assert_empty(self) -> None:
        """Nothing is held any more: no stream, no permit, no queue entry, no slot."""
        assert self.proxy.service.in_flight == 0
        assert all(endpoint.in_flight == 0 for endpoint in self.proxy.pool.endpoints)
        for edge in self.edges:
            assert edge.links.in_flight == 0
            assert all(peer.in_flight == 0 for peer in edge.origins.peers)
            assert all(model.waiting == model.running == 0 for model in edge._shelf.models)
        for origin in self.origins:
            assert len(origin.server) == 0 and len(origin.engine_loop.scheduler) == 0
            origin.engine_loop.scheduler.check()

    async def _steps(self, number: int, origin: Origin) -> None:
        """An engine thread's life, in virtual time."""
        while True:
            origin.engine_loop.step()
            await asyncio.sleep(ORIGIN_STEP_S * self.slow_origins.get(number, 1.0))

    def _fork(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _origin(self, number: int, models: Path) -> Origin:
        config = OriginConfig(engine="echo", models=(models,), pairs=("en-de",), slots=8)
        origin = build_origin(config, clock=self.now, threaded=False)
        self.net.serve(origin_url(number), origin.links.serve)
        return origin

    def _edge(self, number: int, origins: int) -> Edge:
        async def run(work: Callable[[], T]) -> T:
            answer = work()
            await asyncio.sleep(EDGE_RUN_S * self.slow.get(number, 1.0))
            return answer

        def open_engine(entry: ModelEntry) -> LocalEngine:
            return FakeEngine(model=entry.name)

        edge = build_edge(
            EdgeConfig(origins=tuple(map(origin_url, range(origins))), pairs=("en-de",), placement=Policy()),
            discover=lambda: self.registry,
            open_engine=open_engine,
            new_run=lambda _, background=False: run,  # type: ignore[arg-type,return-value]
            clock=self.now,
            connect=self.net.connect,
            rng=self._fork(),
        )
        self.net.serve(edge_url(number), edge.links.serve)
        return edge


def edge_url(number: int) -> str:
    return f"ws://edge-{number}/link"


def origin_url(number: int) -> str:
    return f"ws://origin-{number}/link"


@asynccontextmanager
async def world(
    models: Path, seed: int, *, edges: int = 3, origins: int = 2, attempts: AttemptLimits | None = None
) -> AsyncIterator[World]:
    """A started world that is stopped at the end, and holds nothing then."""
    made = World(models, seed, edges=edges, origins=origins, attempts=attempts)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
