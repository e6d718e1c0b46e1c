"""The only place that builds an edge worker's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from aiohttp import web

from edge_worker.config import EdgeConfig
from edge_worker.engine_thread import EngineThread, Run
from edge_worker.guests import Guests
from edge_worker.local_model import LocalModel
from edge_worker.models import Local, Models
from edge_worker.origin_client import OriginClient
from edge_worker.pipeline import Pipeline
from edge_worker.server import EdgeServer
from edge_worker.shared_runs import SharedRuns
from edge_worker.warm_up import warm_up
from nearsay.runtime.clock import Clock, wall_clock
from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import Connect, Dial, LinkServer, Peer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalEngine, open_engine
from nearsay.text.entry import ModelEntry, load_vocabs
from nearsay.text.errors import TextError
from nearsay.text.registry import Registry
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Hello, LoadReport

OpenEngine = Callable[[ModelEntry], LocalEngine]
NewRun = Callable[[str], Run]

_log = logging.getLogger(__name__)


class Edge:
    """An edge worker as `nearsay.runtime.service` runs it."""

    name = "edge"

    def __init__(
        self,
        config: EdgeConfig,
        registry: Registry,
        *,
        open_engine: OpenEngine,
        new_run: NewRun,
        clock: Clock,
        connect: Connect | None,
        rng: random.Random,
        wall: Clock,
    ) -> None:
        self.config = config
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(self.name)
        self._registry = registry
        self._open_engine = open_engine
        self._new_run = new_run
        self._clock = clock
        self._tasks = Tasks()
        self._instance = f"{rng.getrandbits(64):016x}"
        self._runs: list[Run] = []
        self._local: list[Local] = []
        self._server: EdgeServer | None = None
        self._told: tuple[object, ...] = ()  # standing in the latest report
        dial = Dial.of(config)
        peers = [
            Peer(
                url,
                hello=self._hello_origin,
                tasks=self._tasks,
                limits=config.link,
                clock=clock,
                connect=connect,
                rng=rng,
                dial=dial,
            )
            for url in config.origins
        ]
        self.origins = OriginClient(peers, clock=clock, rng=rng)
        guests = Guests(
            lambda stream: self._ready_server().translate(stream),
            config.guest,
            secret=config.secret,
            grant_key=config.grant_key,
            region=config.region,
            metrics=self.metrics,
            clock=clock,
            wall=wall,
        )
        self.shared = SharedRuns(config.coalesce, metrics=self.metrics, tasks=self._tasks)
        self.links = LinkServer(
            hello=lambda: self._ready_server().hello(),
            handler=guests.serve,
            tasks=self._tasks,
            limits=config.link,
            clock=clock,
            secret=guests.authorise,
            named_max=config.guest.links_max,
        )

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port."""
        return [web.get("/link", self.links.handle), web.get("/probe", self._probe)]

    async def start(self) -> None:
        """Open and warm every model, begin to connect to the origins. Raises ConfigError."""
        await self.origins.start()
        entries = self._entries()
        await asyncio.gather(*(self._open(entry) for entry in _first_of_each_pair(entries)))
        if not self._local and not self.config.origins:
            raise ConfigError(["no model to serve and no 'origins'", *self._registry.problems])
        models = Models(self._local, entries, self.origins)
        pipeline = Pipeline(
            models,
            self.origins,
            self.shared,
            policy=self.config.placement,
            limits=self.config.request,
            segment_limits=self.config.segment,
            offload=self._run("edge-offload"),
            metrics=self.metrics,
            clock=self._clock,
            tasks=self._tasks,
        )
        self._server = EdgeServer(
            pipeline,
            models,
            instance=self._instance,
            state=lambda: self.lifecycle.state,
            metrics=self.metrics,
            clock=self._clock,
            tasks=self._tasks,
        )
        self.origins.on_change(self._report_change)
        self.lifecycle.subscribe(lambda _: self._report_change())
        self._tasks.spawn(self._report_often(), name="load reports")

    async def drain(self) -> None:
        """Let the open streams finish."""
        await self.links.drain(self.config.drain_timeout_s)

    async def stop(self) -> None:
        """Close links, queues, engines and their threads, in this order."""
        await self.origins.close()
        for local in self._local:
            await local.model.close()
        await self._tasks.close()
        for thread in self._runs:
            if isinstance(thread, EngineThread):
                thread.close()

    def _entries(self) -> list[ModelEntry]:
        """The registry's models of the pairs to serve. Raises ConfigError for a pair without any."""
        for problem in self._registry.problems:
            _log.warning("a model is left out: %s", problem)
        pairs = self.config.pairs
        entries = [entry for entry in self._registry.entries if not pairs or entry.pair in pairs]
        if missing := set(pairs) - {entry.pair for entry in entries}:
            raise ConfigError([f"'pairs': no model for {pair}" for pair in sorted(missing)])
        return entries

    async def _open(self, entry: ModelEntry) -> None:
        """Open one model on its own thread. One that doesn't open is left out: the other pairs are served."""
        run = self._run(f"edge-{entry.pair}")

        def opened() -> tuple[LocalEngine, tuple[Vocab, Vocab]]:
            self._registry.verify(entry)
            return self._open_engine(entry), load_vocabs(entry)

        try:
            engine, (source, target) = await run(opened)
            model = LocalModel(
                engine, run=run, limits=self.config.batch, clock=self._clock, tasks=self._tasks, name=entry.pair
            )
            await warm_up(model, source, self._clock)
        except (TextError, NearsayError) as error:
            _log.error("%s is left out: %s", entry.name, error)
            return
        self._local.append(Local(entry, model, source, target))

    def _run(self, name: str) -> Run:
        run = self._new_run(name)
        self._runs.append(run)
        return run

    async def _probe(self, _: web.Request) -> web.Response:
        """How far away this edge is, for whoever asks, and whether it is worth asking: nothing else is told."""
        status = 204 if self.lifecycle.state == "ready" else 503
        return web.Response(status=status, headers={"Cache-Control": "no-store"})

    def _ready_server(self) -> EdgeServer:
        assert self._server is not None, "links are served after start"
        return self._server

    def _hello_origin(self) -> Hello:
        return Hello(role="edge", instance=self._instance, state=self.lifecycle.state, secret=self.config.secret)

    def _report(self) -> None:
        report = self._ready_server().load()
        self._told = _standing(report)
        self.links.publish(report)
        self.metrics.gauge("segments_waiting", report.queued)
        self.metrics.gauge("segments_running", report.running)

    def _report_change(self) -> None:
        """At once what a proxy must not learn late; how busy this edge is can wait for the timer."""
        if _standing(self._ready_server().load()) != self._told:
            self._report()

    async def _report_often(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(self.config.load_report_s)


def build(
    config: EdgeConfig,
    *,
    registry: Registry | None = None,
    open_engine: OpenEngine | None = None,
    new_run: NewRun = EngineThread,
    clock: Clock = time.monotonic,
    connect: Connect | None = None,
    rng: random.Random | None = None,
    wall: Clock = wall_clock,
) -> Edge:
    """An edge worker from its config. All but `config` is for simulations."""
    return Edge(
        config,
        registry or Registry.discover(config.models),
        open_engine=open_engine or _opener(config),
        new_run=new_run,
        clock=clock,
        connect=connect,
        rng=rng or random.Random(secrets.randbits(64)),
        wall=wall,
    )


def main(config_path: Path | None, overrides: Mapping[str, object] | None = None) -> int:
    """Run an edge worker until it is told to stop; the exit status. Raises ConfigError."""
    return run(build(load_config(config_path, EdgeConfig, overrides or {})))


def _opener(config: EdgeConfig) -> OpenEngine:
    return lambda entry: open_engine(entry, device=config.device, threads=config.threads)


def _first_of_each_pair(entries: Iterable[ModelEntry]) -> list[ModelEntry]:
    """The edge models to open."""
    found: dict[str, ModelEntry] = {}
    for entry in entries:
        if entry.tier == "edge":
            found.setdefault(entry.pair, entry)
    return list(found.values())


def _standing(report: LoadReport) -> tuple[object, ...]:
    """What of a report is no matter of load."""
    return report.state, report.models, report.origin_ready
