"""The models that run on this edge: opened each on a thread of its own, closed when nobody has them in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge_worker.core.batcher import BatchLimits
from edge_worker.engine_thread import EngineThread, Run
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
NewRun = Callable[[str], Run]


class Shelf:
    """Owns engines, their queues and their threads."""

    def __init__(
        self, limits: BatchLimits, *, open_engine: OpenEngine, new_run: NewRun, clock: Clock, tasks: Tasks
    ) -> None:
        self._limits = limits
        self._open_engine = open_engine
        self._new_run = new_run
        self._clock = clock
        self._tasks = tasks
        self._runs: dict[LocalModel, Run] = {}

    @property
    def models(self) -> list[LocalModel]:
        """Those that are open."""
        return list(self._runs)

    async def open(self, entry: ModelEntry, vocabs: tuple[Vocab, Vocab]) -> Local:
        """Open a model and warm it up. Raises TextError and NearsayError; nothing is left open then."""
        run = self._new_run(f"edge-{entry.pair}")
        try:
            engine = await run(lambda: self._opened(entry))
        except BaseException:
            _end(run)
            raise
        model = LocalModel(engine, run=run, limits=self._limits, clock=self._clock, tasks=self._tasks, name=entry.pair)
        self._runs[model] = run
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
        run = self._runs.pop(model)
        await model.close()
        _end(run)

    async def close_all(self) -> None:
        """Close what is open."""
        await asyncio.gather(*(self.close(model) for model in self.models))

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
