"""The only place that builds an origin's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import LinkServer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.model_admin import Standing, model_routes, standings
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.registry import Registry
from nearsay.wire.messages import Hello, LoadReport
from origin.config import OriginConfig, thread_count
from origin.core.lineup import Vocabularies
from origin.core.model import ServedModel
from origin.core.past_answers import PastAnswers
from origin.core.plan import Effect
from origin.core.scheduler import Scheduler, largest_request
from origin.core.sessions import Sessions
from origin.door import Door
from origin.engine.base import Engine
from origin.engine.echo import EchoEngine
from origin.engine.torch_engine import TorchEngine, TorchOptions
from origin.engine_loop import EngineLoop
from origin.engine_thread import EngineThread
from origin.models import Found, Models
from origin.reporter import Reporter
from origin.server import OriginServer

ENGINE_EXIT_TIMEOUT_S = 5.0
ECHO_VOCAB_SIZE = 1 << 31


class Origin:
    """An origin process as `nearsay.runtime.service` runs it.

    With `threaded` false no thread is started: `start` loads the engine, and a simulation calls `engine_loop.step`.
    """

    name = "origin"

    def __init__(
        self, config: OriginConfig, engine: Engine, found: Found | None, *, clock: Clock, threaded: bool
    ) -> None:
        """`found`: the models to serve; None if `engine` has its own."""
        self.config = config
        self._found = found or Found(Registry(()), ())
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(self.name)
        self._instance = secrets.token_hex(8)
        self._tasks = Tasks()
        self._threaded = threaded
        self._event_loop: asyncio.AbstractEventLoop | None = None
        sessions, past = Sessions(config.sessions), PastAnswers(config.past_answers_mb << 20)
        self._door = Door(
            budget_ms_max=config.budget_ms_max,
            count_draft=lambda why: self.metrics.count("drafts_not_taken", why=why),
            sessions=sessions,
            past=past,
        )
        self.engine_loop = EngineLoop(
            engine,
            lambda models: _scheduler(models, config),
            clock=clock,
            deliver=self._deliver,
            inbox_max=config.inbox_max,
            keep_warm_s=config.keep_warm_s,
        )
        self.models = Models(
            engine,
            self.engine_loop,
            find=lambda: find(config),
            tell=self._models_changed,
            edges=lambda: [_readable(*peer) for peer in self.links.peers() if peer[0].role == "edge"],
            grace_s=config.swap_grace_s,
            request_tokens_max=config.scheduler.encode_tokens_per_step,
            metrics=self.metrics,
            tasks=self._tasks,
        )
        self._thread = EngineThread(self.engine_loop, on_exit=self._engine_left)
        self.server = OriginServer(self._door, self.engine_loop, self.metrics, clock, sessions, past)
        self.links = LinkServer(
            hello=self._hello,
            handler=self.server.submit,
            tasks=self._tasks,
            limits=config.link,
            clock=clock,
            secret=config.secret,
        )
        self._reporter = Reporter(
            self.engine_loop, self.server, self.links, self.metrics, self.lifecycle, self.models.infos
        )

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port."""
        return [web.get("/link", self.links.handle), web.get("/healthz", self._health)]

    def admin_routes(self) -> list[web.RouteDef]:
        """The models: how they stand, and a look at the disk for newer ones."""
        return model_routes(self.models, self.lifecycle, self._tasks)

    async def start(self) -> None:
        """Load the models and warm them up. Raises ConfigError when none can be served."""
        self._event_loop = asyncio.get_running_loop()
        loaded = await self._thread.start() if self._threaded else self.engine_loop.load()
        await self.models.start(self._found, loaded)
        self.lifecycle.subscribe(lambda _: self._reporter.report())
        self._tasks.spawn(self._reporter.run(self.config.report_interval_s), name="load reports")

    async def drain(self) -> None:
        """Let the open streams finish."""
        await self.links.drain(self.config.drain_timeout_s)

    async def stop(self) -> None:
        """End the engine thread, every link and every task."""
        await self._thread.stop(ENGINE_EXIT_TIMEOUT_S)
        await self._tasks.close()

    def _deliver(self, effects: list[Effect]) -> None:
        """From the engine's thread to the event loop."""
        if self._threaded and self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(self.server.perform, effects)
        else:
            self.server.perform(effects)

    def _engine_left(self) -> None:
        self.server.abandon()
        self.lifecycle.fail("the engine has stopped")

    def _models_changed(self, admitted: Sequence[ServedModel], left_out: Collection[str]) -> None:
        self._door.open(admitted, left_out)
        report = self.models.report()
        self.lifecycle.notes |= standings(report)
        for standing in get_args(Standing):
            of = [state for state in report.models if state.standing == standing]
            self.metrics.gauge("models", len(of), standing=standing)
            self.metrics.gauge("model_bytes", sum(state.bytes for state in of), standing=standing)
        self._reporter.report()

    def _hello(self) -> Hello:
        return Hello("origin", instance=self._instance, state=self.lifecycle.state, models=self.models.infos())

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"state": self.lifecycle.state})


def build(
    config: OriginConfig,
    *,
    clock: Clock = time.monotonic,
    engine: Engine | None = None,
    threaded: bool = True,
) -> Origin:
    """An origin from its config. Raises ConfigError. `clock`, `engine` and `threaded` are for simulations."""
    if engine is not None:
        return Origin(config, engine, None, clock=clock, threaded=threaded)
    found = find(config)
    return Origin(config, _engine(config, found, clock), found, clock=clock, threaded=threaded)


def main(config_path: Path | None, overrides: Mapping[str, object] | None = None) -> int:
    """Run an origin until it is told to stop; the exit status. Raises ConfigError."""
    return run(build(load_config(config_path, OriginConfig, overrides or {})))


def find(config: OriginConfig) -> Found:
    """Look at the disk. Raises ConfigError for a pair that the config names and nothing serves."""
    registry = Registry.discover(config.models)
    chosen: dict[str, ModelEntry] = {}
    for entry in registry.entries:
        if entry.tier == "origin" and (not config.pairs or entry.pair in config.pairs):
            chosen.setdefault(entry.pair, entry)
    if missing := set(config.pairs) - chosen.keys():
        raise ConfigError([f"'pairs': no origin model for {pair}" for pair in sorted(missing)])
    return Found(registry, tuple(chosen.values()))


def _engine(config: OriginConfig, found: Found, clock: Clock) -> Engine:
    """An engine that echoes has its models from the start, one that computes loads them one by one."""
    if config.engine == "echo":
        return EchoEngine(
            [_echo_model(entry, config) for entry in found.entries], make=partial(_echo_model, config=config)
        )
    options = TorchOptions(
        device=config.device,
        dtype=config.dtype,
        threads=thread_count(config.threads, len(os.sched_getaffinity(0))),
        slots=config.slots,
        beam_max=min(config.beam_max, config.slots),
        encoder_cache_bytes=config.encoder_cache_mb << 20,
        encoder_cache_host_bytes=config.encoder_cache_host_mb << 20,
        memory_bytes_max=config.memory_bytes_max,
    )
    return TorchEngine((), options, clock=clock)


def _scheduler(models: tuple[ServedModel, ...], config: OriginConfig) -> Scheduler:
    least = largest_request(models)
    if config.scheduler.encode_tokens_per_step < least:
        raise ConfigError([f"'scheduler.encode_tokens_per_step' must be at least {least} for these models"])
    return Scheduler(models, config.scheduler)


def _readable(hello: Hello, load: LoadReport | None) -> frozenset[Vocabularies]:
    """What an edge can make and read the ids of."""
    models = (load.models if load is not None else ()) or hello.models
    return frozenset(Vocabularies(f"{m.source}-{m.target}", m.src_vocab_hash, m.trg_vocab_hash) for m in models)


def _echo_model(entry: ModelEntry, config: OriginConfig) -> ServedModel:
    return ServedModel(
        info=entry.info("echo"),
        src_vocab_size=ECHO_VOCAB_SIZE,
        trg_vocab_size=ECHO_VOCAB_SIZE,
        prefix_ids=entry.prefix_ids,
        slots=config.slots,
        beam_max=min(config.beam_max, config.slots),
    )
