"""The only place that builds an edge worker's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web

from edge_worker.config import EdgeConfig
from edge_worker.disk import Disk
from edge_worker.engine_thread import EngineThread
from edge_worker.guests import Guests
from edge_worker.models import Models
from edge_worker.origin_client import OriginClient
from edge_worker.pipeline import Pipeline
from edge_worker.reloader import Reloader
from edge_worker.server import EdgeServer
from edge_worker.shared_runs import SharedRuns
from edge_worker.shelf import NewRun, OpenEngine, Shelf
from nearsay.runtime.clock import Clock, wall_clock
from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import Connect, Dial, LinkServer, Peer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.model_admin import model_routes, standings
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import open_engine
from nearsay.text.registry import Registry
from nearsay.wire.messages import Hello, LoadReport


class Edge:
    """An edge worker as `nearsay.runtime.service` runs it."""

    name = "edge"

    def __init__(
        self,
        config: EdgeConfig,
        discover: Callable[[], Registry],
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
        self._clock = clock
        self._tasks = Tasks()
        self._instance = f"{rng.getrandbits(64):016x}"
        self._disk = Disk(discover, config.pairs)
        self._shelf = Shelf(
            config.batch, config.batch_engine, open_engine=open_engine, new_run=new_run, clock=clock, tasks=self._tasks
        )
        self._offload = new_run("edge-offload")
        self.reloader = Reloader(
            self._disk,
            self._shelf,
            offload=self._offload,
            changed=self._models_changed,
            metrics=self.metrics,
            tasks=self._tasks,
        )
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

    def admin_routes(self) -> list[web.RouteDef]:
        """The models: how they stand, and a look at the disk for newer ones."""
        return model_routes(self.reloader, self.lifecycle, self._tasks)

    async def start(self) -> None:
        """Open and warm every model, begin to connect to the origins. Raises ConfigError."""
        await self._offload(self._disk.look)
        await self.origins.start()
        local = await self.reloader.start()
        if not local and not self.config.origins:
            raise ConfigError(["no model to serve and no 'origins'", *self._disk.problems])
        models = Models(
            local,
            self._disk.entries,
            self._disk.vocabs,
            self.origins,
            look=self.reloader.look,
            tasks=self._tasks,
        )
        self.reloader.serve(models)
        self._note_models()
        pipeline = Pipeline(
            models,
            self.origins,
            self.shared,
            policy=self.config.placement,
            limits=self.config.request,
            segment_limits=self.config.segment,
            offload=self._offload,
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
        await self._shelf.close_all()
        await self._tasks.close()
        if isinstance(self._offload, EngineThread):
            self._offload.close()

    async def _probe(self, _: web.Request) -> web.Response:
        """How far away this edge is, for whoever asks, and whether it is worth asking: nothing else is told."""
        status = 204 if self.lifecycle.state == "ready" else 503
        return web.Response(status=status, headers={"Cache-Control": "no-store"})

    def _ready_server(self) -> EdgeServer:
        assert self._server is not None, "links are served after start"
        return self._server

    def _hello_origin(self) -> Hello:
        return Hello(
            role="edge",
            instance=self._instance,
            state=self.lifecycle.state,
            models=tuple(entry.info() for entry in self._disk.readable()),
            secret=self.config.secret,
        )

    def _models_changed(self) -> None:
        """Origins hear what can be read here now, proxies what is served."""
        readable = tuple(entry.info() for entry in self._disk.readable())
        for peer in self.origins.peers:
            peer.publish(LoadReport(self.lifecycle.state, models=readable))
        self._note_models()
        self._report_change()

    def _note_models(self) -> None:
        self.lifecycle.notes |= standings(self.reloader.report())

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
    discover: Callable[[], Registry] | None = None,
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
        discover or (lambda: Registry.discover(config.models)),
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


def _standing(report: LoadReport) -> tuple[object, ...]:
    """What of a report is no matter of load."""
    return report.state, report.models, report.origin_ready
