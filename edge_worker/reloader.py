"""Newer models on this edge's disk take the place of those that are served, when somebody asks for it.

A model of ours is opened and warmed up beside the one that runs; then segments go to it, and the old one is closed when
it has done what it was given. Whatever goes wrong before, the old one goes on, and the new one is left out by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from edge_worker.disk import Disk, vocab_key
from edge_worker.engine_thread import Run
from edge_worker.local_model import LocalModel
from edge_worker.models import Local, Models
from edge_worker.shelf import Shelf
from nearsay.runtime.config import ConfigError
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.model_admin import ModelProblem, ModelsReport, ModelState, Standing
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.errors import EngineUnavailable, TextError
from nearsay.text.vocab import Vocab

_log = logging.getLogger(__name__)


class Reloader:
    """Implements `nearsay.runtime.model_admin.ModelKeeper`. `changed` is called when peers must hear of it."""

    def __init__(
        self,
        disk: Disk,
        shelf: Shelf,
        *,
        offload: Run,
        changed: Callable[[], None],
        metrics: Metrics,
        tasks: Tasks,
    ) -> None:
        self._disk = disk
        self._shelf = shelf
        self._offload = offload
        self._changed = changed
        self._metrics = metrics
        self._tasks = tasks
        self._models: Models | None = None
        self._serving: dict[str, Local] = {}  # by pair
        self._draining: dict[LocalModel, ModelState] = {}
        self._left_out: dict[str, ModelState] = {}
        self._swapped: list[tuple[str, str]] = []
        self._notes: tuple[str, ...] = ()
        self._one_look = asyncio.Lock()

    async def start(self) -> list[Local]:
        """Open what is on the disk, which has been looked at."""
        self._notes = self._disk.problems
        vocabs = self._disk.vocabs
        await asyncio.gather(*(self._take(entry, vocabs[vocab_key(entry)]) for entry in self._disk.here()))
        return list(self._serving.values())

    def serve(self, models: Models) -> None:
        """From now on changes are told to `models`."""
        self._models = models

    def report(self) -> ModelsReport:
        """How things stand."""
        gone = self._serving.keys() - {entry.pair for entry in self._disk.here()}
        states = [_state(local.entry, "gone" if pair in gone else "") for pair, local in self._serving.items()]
        every = (*states, *self._draining.values(), *self._left_out.values())
        return ModelsReport("edge", every, tuple(self._swapped), self._notes)

    async def reload(self) -> ModelsReport:
        """Look at the disk again; what is new there takes the place of what is served."""
        self._swapped, self._left_out = [], {}
        if await self._look("asked"):
            vocabs = self._disk.vocabs  # of this look: another one may come while models are opened
            for entry in self._disk.here():
                await self._take(entry, vocabs[vocab_key(entry)])
            self._changed()
        return self.report()

    async def look(self) -> None:
        """Look at the disk again for vocabularies only, because an origin has a model that can't be read here."""
        if await self._look("unreadable"):
            self._changed()

    async def _look(self, why: str) -> bool:
        """Whether all that should be there is."""
        assert self._models is not None, "not started"
        self._metrics.count("disk_looks", why=why)
        async with self._one_look:
            try:
                await self._offload(self._disk.look)
            except ConfigError as error:
                _log.error("models are left as they are: %s", error)
                self._notes = tuple(error.problems)
                return False
            self._notes = self._disk.problems
            self._models.learn(self._disk.entries, self._disk.vocabs)
            return True

    async def _take(self, entry: ModelEntry, vocabs: tuple[Vocab, Vocab]) -> None:
        """Serve a model, if it is new; leave it out by name, if that doesn't work."""
        old = self._serving.get(entry.pair)
        if old is not None and entry.name == old.entry.name:
            if _files(entry) != _files(old.entry):
                detail = f"{entry.name} has other files than those served: give it a new version"
                self._leave_out(entry, "version_reused", detail)
            return
        try:
            local = await self._shelf.open(entry, vocabs)
        except Exception as error:
            problem = _problem_of(error)
            self._leave_out(entry, problem, str(error), cause=error if problem == "broken" else None)
            return
        self._serving[entry.pair] = local
        self._metrics.count("model_loads", result="ok")
        if self._models is not None:
            self._models.put(local)
            self._swapped.append((old.entry.name if old is not None else "", entry.name))
        if old is not None:
            self._draining[old.model] = _state(old.entry, "", draining=True)
            self._tasks.spawn(self._retire(old), name=f"retire {old.entry.name}")

    async def _retire(self, old: Local) -> None:
        await self._shelf.retire(old.model)
        del self._draining[old.model]

    def _leave_out(self, entry: ModelEntry, problem: ModelProblem, detail: str, cause: Exception | None = None) -> None:
        _log.error("%s is left out (%s): %s", entry.name, problem, detail, exc_info=cause)
        self._metrics.count("model_loads", result=problem)
        self._left_out[entry.name] = ModelState(entry.name, entry.pair, "edge", "left_out", 0, problem, detail)


def _files(entry: ModelEntry) -> tuple[object, ...]:
    """What tells a model's files from others', as far as digests are listed."""
    return sorted(entry.sha256.values()), vocab_key(entry)


def _state(entry: ModelEntry, problem: ModelProblem, *, draining: bool = False) -> ModelState:
    detail = "it goes on, but no model for this pair is on the disk any more" if problem else ""
    standing: Standing = "draining" if draining else "serving"
    return ModelState(entry.name, entry.pair, "edge", standing, 0, problem, detail)


def _problem_of(error: Exception) -> ModelProblem:
    match error:
        case EngineUnavailable():
            return "unavailable"
        case MemoryError():
            return "memory"
        case TextError() | OSError():
            return "damaged"
        case _:
            return "broken"
