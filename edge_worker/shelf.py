"""The models that run on this edge: opened each on a thread of its own, closed when nobody has them in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from edge_worker.core.batcher import BatchLimits
from edge_worker.engine_thread import EngineThread, Run
from edge_worker.lane import Lane
from edge_worker.local_model import LocalModel
from edge_worker.models import Local
from edge_worker.warm_up import warm_up
from nearsay.runtime.clock import Clock
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalEngine
from nearsay.text.entry import ModelEntry
from nearsay.text.errors import ModelError
from nearsay.text.vocab import Vocab

OpenEngine = Callable[[ModelEntry], LocalEngine]


class NewRun(Protocol):
    """Makes what an engine runs on."""

    def __call__(self, name: str, *, background: bool = False) -> Run: ...


class Shelf:
    """Owns engines, their queues and their threads. `batch_engine`: batch-class work gets an engine of its own."""

    def __init__(
        self,
        limits: BatchLimits,
        batch_engine: bool,
        *,
        open_engine: OpenEngine,
        new_run: NewRun,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._limits = limits
        self._batch_engine = batch_engine
        self._open_engine = open_engine
        self._new_run = new_run
        self._clock = clock
        self._tasks = tasks
        self._runs: dict[LocalModel, list[Run]] = {}

    @property
    def models(self) -> list[LocalModel]:
        """Those that are open."""
        return list(self._runs)

    async def open(self, entry: ModelEntry, vocabs: tuple[Vocab, Vocab]) -> Local:
        """Open a model and warm it up. Raises TextError and NearsayError; nothing is left open then."""
        runs: list[Run] = []
        lane = await self._lane(entry, runs)
        # A second engine on the same GPU would only be in the way of the first.
        twice = self._batch_engine and lane.engine.info.device == "cpu"
        open_bulk = partial(self._lane, entry, runs, background=True) if twice else None
        model = LocalModel(lane, tasks=self._tasks, open_bulk=open_bulk)
        self._runs[model] = runs
        try:
            await warm_up(model, vocabs[0], self._clock)
        except BaseException:
            await self.close(model)
            raise
        return Local(entry, model, *vocabs)

    async def retire(self, model: LocalModel) -> None:
        """Close a model whose place another has taken, as soon as it is of no more use to anybody."""
        await model.unused()
        await self.close(model)

    async def close(self, model: LocalModel) -> None:
        """Close a model; whoever waits for it gets an error."""
        runs = self._runs.pop(model)
        await model.close()
        for run in runs:
            _end(run)

    async def close_all(self) -> None:
        """Close what is open."""
        await asyncio.gather(*(self.close(model) for model in self.models))

    async def _lane(self, entry: ModelEntry, runs: list[Run], *, background: bool = False) -> Lane:
        """An engine of the model on a thread of its own, which is added to `runs`."""
        name = f"edge-{entry.pair}" + ("-batch" if background else "")
        run = self._new_run(name, background=background)
        try:
            engine = await run(lambda: self._opened(entry))
        except BaseException:
            _end(run)
            raise
        runs.append(run)
        return Lane(engine, run=run, limits=self._limits, clock=self._clock, tasks=self._tasks, name=entry.pair)

    def _opened(self, entry: ModelEntry) -> LocalEngine:
        """On the model's thread. Raises ModelError for files that are damaged, or change while they are read."""
        stamp = entry.stamp()
        entry.verify()
        engine = self._open_engine(entry)
        if entry.stamp() != stamp:
            engine.close()
            raise ModelError(entry.path, "changed while it was read")
        return engine


def _end(run: Run) -> None:
    """Let a thread of our own end after what it is doing."""
    if isinstance(run, EngineThread):
        run.close()
