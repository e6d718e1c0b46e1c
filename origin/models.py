"""Which models this origin serves, from the first look at the disk to the last swap. Lives on the event loop.

A new version is loaded and tried out beside the old one, on a thread of its own. Then new work goes to it, those who
decode with the old one come to their end, and its weights are freed. Whatever goes wrong before, the old one goes on,
and the new one is left out by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from nearsay.nmt.weights import WeightsError
from nearsay.runtime.config import ConfigError
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.model_admin import ModelProblem, ModelsReport, ModelState, Standing
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.errors import ModelError
from nearsay.text.registry import Registry
from nearsay.wire.errors import Unavailable
from nearsay.wire.messages import ModelInfo
from origin.core.lineup import Candidate, Objection, Vocabularies, is_new, objection
from origin.core.model import ServedModel
from origin.core.scheduler import largest_request
from origin.engine.base import Engine, NotFinite, Prepared
from origin.engine_loop import EngineLoop
from origin.engine_thread import on_thread

_log = logging.getLogger(__name__)

RELEASE_WAIT_S = 30.0  # that a model which lacks memory waits for others that are on their way out

Tell = Callable[[Sequence[ServedModel], Collection[str]], None]
"""Is told which models are admitted, and the names of those that are left out, whenever that changes."""


class Found(NamedTuple):
    """One look at the disk: the model to serve for each pair, in order of preference."""

    registry: Registry
    entries: tuple[ModelEntry, ...]


class Refused(Exception):
    """A model is not taken."""

    def __init__(self, problem: ModelProblem, detail: str) -> None:
        self.problem = problem
        super().__init__(detail)


class _Served(NamedTuple):
    candidate: Candidate
    model: ServedModel

    @property
    def pair(self) -> str:
        return self.candidate.vocabularies.pair


class Models:
    """Implements `nearsay.runtime.model_admin.ModelKeeper`."""

    def __init__(
        self,
        engine: Engine,
        loop: EngineLoop,
        *,
        find: Callable[[], Found],
        tell: Tell,
        edges: Callable[[], Sequence[Collection[Vocabularies]]],
        grace_s: float,
        request_tokens_max: int,
        metrics: Metrics,
        tasks: Tasks,
    ) -> None:
        """`edges`: what each edge that is connected can read. `grace_s`: how long after a swap the old name is still
        admitted, for edges that have not heard of it. `request_tokens_max`: the largest that the scheduler takes."""
        self._engine = engine
        self._loop = loop
        self._find = find
        self._tell = tell
        self._edges = edges
        self._grace_s = grace_s
        self._request_tokens_max = request_tokens_max
        self._metrics = metrics
        self._tasks = tasks
        self._serving: dict[str, _Served] = {}  # by pair
        self._admitted: dict[str, _Served] = {}  # by name; also those that have just been replaced
        self._retiring: dict[asyncio.Task[None], _Served] = {}
        self._left_out: dict[str, ModelState] = {}
        self._gone: frozenset[str] = frozenset()  # pairs
        self._swapped: list[tuple[str, str]] = []
        self._notes: tuple[str, ...] = ()

    def infos(self) -> tuple[ModelInfo, ...]:
        """The models that new work goes to."""
        return tuple(served.model.info for served in self._serving.values())

    def report(self) -> ModelsReport:
        """How things stand."""
        states = [_state(served, "serving", gone=served.pair in self._gone) for served in self._serving.values()]
        states += [_state(served, "draining") for served in self._retiring.values()]
        return ModelsReport("origin", (*states, *self._left_out.values()), tuple(self._swapped), self._notes)

    async def start(self, found: Found, loaded: Iterable[ServedModel]) -> None:
        """Take in what was found; the engine has `loaded` some already. Raises ConfigError when none can be served."""
        entries = {entry.name: entry for entry in found.entries}
        for model in loaded:
            self._admit(_Served(_candidate(model.info, entries.get(model.name)), model))
        await self._take_all(found)
        if not self._serving:
            problems = [f"{state.name} is left out: {state.detail}" for state in self._left_out.values()]
            raise ConfigError(problems or ["no origin model was found", *found.registry.problems])

    async def reload(self) -> ModelsReport:
        """Look at the disk again. Returns when new work goes to whatever could be taken; old models may still drain."""
        try:
            found = await on_thread(self._find, "look for models")
        except ConfigError as error:  # a pair that the config names has no model any more
            self._left_out, self._swapped, self._notes = {}, [], tuple(error.problems)
            self._gone = frozenset(self._serving)
        else:
            await self._take_all(found)
        return self.report()

    # ---- one comes ---------------------------------------------------------------------------------------------------

    async def _take_all(self, found: Found) -> None:
        self._left_out, self._swapped, self._notes = {}, [], found.registry.problems
        self._gone = frozenset(self._serving) - {entry.pair for entry in found.entries}
        for entry in found.entries:
            try:
                await self._take(entry)
            except Exception as error:
                self._leave_out(entry, error)
        self._announce()

    async def _take(self, entry: ModelEntry) -> None:
        """Serve a model, if it is new. Raises what speaks against it."""
        old = self._serving.get(entry.pair)
        candidate = _candidate(entry.info(), entry)
        if not is_new(candidate, old and old.candidate):
            return
        size = await on_thread(partial(self._engine.footprint, entry), f"size of {entry.pair}")
        candidate = msgspec.structs.replace(candidate, bytes=size)
        against = self._objection(candidate, old)
        if against is not None and against.problem in ("memory", "draining") and self._retiring:
            await asyncio.wait(self._retiring, timeout=RELEASE_WAIT_S)
            against = self._objection(candidate, old)
        if against is not None:
            raise Refused(against.problem, against.detail)
        prepared = await on_thread(partial(self._load, entry), f"load {entry.pair}")
        largest = largest_request((prepared.model,))
        if largest > self._request_tokens_max:
            raise Refused("limits", f"'scheduler.encode_tokens_per_step' must be at least {largest} for these models")
        await asyncio.wrap_future(self._loop.adopt(prepared))
        self._admit(_Served(candidate, prepared.model))
        self._swapped.append((old.model.name if old else "", prepared.model.name))
        self._metrics.count("model_loads", result="ok")
        if old is not None:
            retiring = self._tasks.spawn(self._retire(old), name=f"retire {old.model.name}")
            self._retiring[retiring] = old
            retiring.add_done_callback(self._retiring.pop)
        self._announce()

    def _objection(self, candidate: Candidate, old: _Served | None) -> Objection | None:
        return objection(
            candidate,
            old and old.candidate,
            retiring=[served.candidate for served in self._retiring.values()],
            bytes_left=self._bytes_left(),
            edges=self._edges(),
        )

    def _bytes_left(self) -> int:
        held = (*self._serving.values(), *self._retiring.values())
        return self._engine.memory_bytes_max - sum(served.candidate.bytes for served in held)

    def _load(self, entry: ModelEntry) -> Prepared:
        """On the loader's thread. Raises ModelError for files that are damaged, or change while they are read."""
        stamp = entry.stamp()
        entry.verify()
        prepared = self._engine.prepare(entry)
        if entry.stamp() != stamp:
            raise ModelError(entry.path, "changed while it was read")
        return prepared

    def _admit(self, served: _Served) -> None:
        self._serving[served.pair] = self._admitted[served.model.name] = served

    def _leave_out(self, entry: ModelEntry, error: Exception) -> None:
        problem = _problem_of(error)
        _log.error(
            "%s is left out (%s): %s", entry.name, problem, error, exc_info=error if problem == "broken" else None
        )
        self._metrics.count("model_loads", result=problem)
        self._left_out[entry.name] = ModelState(entry.name, entry.pair, "origin", "left_out", 0, problem, str(error))

    # ---- one goes ----------------------------------------------------------------------------------------------------

    async def _retire(self, old: _Served) -> None:
        """Give a model up: soon nothing is admitted for it any more; freed when its last sequence has ended."""
        await asyncio.sleep(self._grace_s)
        del self._admitted[old.model.name]
        self._announce()
        with suppress(Unavailable):  # the engine has stopped, and has freed everything
            await asyncio.wrap_future(self._loop.release(old.model.name))

    def _announce(self) -> None:
        self._tell([served.model for served in self._admitted.values()], self._left_out.keys())


def _candidate(info: ModelInfo, entry: ModelEntry | None) -> Candidate:
    """`entry`: None for a model that is on no disk. Its size is still to be found out."""
    vocabularies = Vocabularies(f"{info.source}-{info.target}", info.src_vocab_hash, info.trg_vocab_hash)
    digests = tuple(sorted(entry.sha256.values())) if entry is not None else ()
    return Candidate(info.name, vocabularies, digests, 0)


def _state(served: _Served, standing: Standing, *, gone: bool = False) -> ModelState:
    problem: ModelProblem = "gone" if gone else ""
    detail = "it goes on, but no model for this pair is on the disk any more" if gone else ""
    size = served.candidate.bytes
    return ModelState(served.model.name, served.pair, "origin", standing, size, problem, detail)


def _problem_of(error: Exception) -> ModelProblem:
    match error:
        case Refused():
            return error.problem
        case ModelError() | WeightsError() | OSError():
            return "damaged"
        case NotFinite():
            return "not_finite"
        case MemoryError():
            return "memory"
        case _:
            return "broken"
