"""The only place that builds an origin's concrete parts and wires them together."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from nearsay.nmt.weights import WeightsError
from nearsay.runtime.clock import Clock
from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import LinkServer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.service import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.errors import ModelError
from nearsay.text.registry import Registry
from nearsay.wire.messages import Hello
from origin.config import OriginConfig, thread_count
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
from origin.reporter import Reporter
from origin.server import OriginServer

ENGINE_EXIT_TIMEOUT_S = 5.0
ECHO_VOCAB_SIZE = 1 << 31


class Origin:
    """An origin process as `nearsay.runtime.service` runs it.

    With `threaded` false no thread is started: `start` loads the engine, and a simulation calls `engine_loop.step`.
    """

    name = "origin"

    def __init__(self, config: OriginConfig, engine: Engine, *, clock: Clock, threaded: bool) -> None:
        self.config = config
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(self.name)
        self._instance = secrets.token_hex(8)
        self._models: tuple[ServedModel, ...] = ()
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
        self._reporter = Reporter(self.engine_loop, self.server, self.links, self.metrics, self.lifecycle)

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port."""
        return [web.get("/link", self.links.handle), web.get("/healthz", self._health)]

    async def start(self) -> None:
        """Load the models and warm them up. Raises ConfigError for weights that can't be used."""
        self._event_loop = asyncio.get_running_loop()
        try:
            self._models = await self._thread.start() if self._threaded else self.engine_loop.load()
        except WeightsError as error:
            raise ConfigError([str(error)]) from error
        self._door.open(self._models)
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
        if self.lifecycle.state == "ready":
            self.lifecycle.move("draining")

    def _hello(self) -> Hello:
        models = tuple(model.info for model in self._models)
        return Hello("origin", instance=self._instance, state=self.lifecycle.state, models=models)

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
    return Origin(config, engine or _engine(config, clock), clock=clock, threaded=threaded)


def main(config_path: Path | None, overrides: Mapping[str, object] | None = None) -> int:
    """Run an origin until it is told to stop; the exit status. Raises ConfigError."""
    return run(build(load_config(config_path, OriginConfig, overrides or {})))


def _engine(config: OriginConfig, clock: Clock) -> Engine:
    registry = Registry.discover(config.models)
    found: dict[str, ModelEntry] = {}
    for entry in registry.entries:
        if entry.tier == "origin":
            found.setdefault(entry.pair, entry)
    if missing := set(config.pairs) - found.keys():
        raise ConfigError([f"'pairs': no origin model for {pair}" for pair in sorted(missing)])
    chosen = [entry for pair, entry in found.items() if not config.pairs or pair in config.pairs]
    if not chosen:
        raise ConfigError(["no origin model was found", *registry.problems])
    for entry in chosen:
        _verify(registry, entry)
    if config.engine == "echo":
        return EchoEngine([_echo_model(entry, config) for entry in chosen])
    options = TorchOptions(
        device=config.device,
        dtype=config.dtype,
        threads=thread_count(config.threads, len(os.sched_getaffinity(0))),
        slots=config.slots,
        beam_max=min(config.beam_max, config.slots),
        encoder_cache_bytes=config.encoder_cache_mb << 20,
        encoder_cache_host_bytes=config.encoder_cache_host_mb << 20,
    )
    return TorchEngine(chosen, options, clock=clock)


def _scheduler(models: tuple[ServedModel, ...], config: OriginConfig) -> Scheduler:
    least = largest_request(models)
    if config.scheduler.encode_tokens_per_step < least:
        raise ConfigError([f"'scheduler.encode_tokens_per_step' must be at least {least} for these models"])
    return Scheduler(models, config.scheduler)


def _verify(registry: Registry, entry: ModelEntry) -> None:
    try:
        registry.verify(entry)
    except ModelError as error:
        raise ConfigError([str(error)]) from error


def _echo_model(entry: ModelEntry, config: OriginConfig) -> ServedModel:
    return ServedModel(
        info=entry.info("echo"),
        src_vocab_size=ECHO_VOCAB_SIZE,
        trg_vocab_size=ECHO_VOCAB_SIZE,
        prefix_ids=entry.prefix_ids,
        slots=config.slots,
        beam_max=min(config.beam_max, config.slots),
    )
