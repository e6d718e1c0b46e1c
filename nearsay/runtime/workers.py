"""The parent of several processes of one service: it owns the ports, they serve them.

The sockets are the parent's, so that no connection is refused while processes change: what nobody has taken yet waits
in the one queue that all of them take from. (With SO_REUSEPORT each has a queue of its own, lost with it: ADR 14.)
A worker that dies is started again, after a wait that grows. A reload puts a new one in the place of each old one, one
after the other, and has the old one drain only when the new one is ready: one that fails leaves the rest as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from nearsay.runtime.backoff import Backoff
from nearsay.runtime.child import Child, ChildFailed
from nearsay.runtime.config import ServiceConfig
from nearsay.runtime.inherited import Inherited
from nearsay.runtime.metrics import Metrics, MetricsState
from nearsay.runtime.tasks import Tasks

READY_TIMEOUT_S = 60.0
STOP_MARGIN_S = 5.0  # more than a worker's own drain takes
RESTART_MIN_S = 0.1
RESTART_MAX_S = 10.0
STABLE_S = 10.0  # one that lived so long is started again at once when it dies
_log = logging.getLogger(__name__)


class Shared(Protocol):
    """What the processes have in common besides the ports, and the parent's part in it."""

    @property
    def memory(self) -> int:
        """A file that they all map."""

    def left(self, row: int) -> None:
        """The process of this row has ended."""

    async def run(self, metrics: Metrics) -> None:
        """What the parent does about it all the time."""


class Worker:
    """One process, from its start to its end."""

    def __init__(self, child: Child, row: int, report: int) -> None:
        self.child = child
        self.row = row
        self.since = asyncio.get_running_loop().time()
        self.draining = False
        self.last: MetricsState | None = None  # what it had measured when it was last asked
        self._report = report

    def ended(self) -> MetricsState | None:
        """What it had measured in all: it says so at its end, and if it was killed there is what it last said."""
        with os.fdopen(self._report, "rb") as report:
            report.seek(0)
            said = report.read()
        return msgspec.json.decode(said, type=MetricsState) if said else self.last


class Workers:
    """Single owner of a service's processes."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        config: ServiceConfig,
        count: int,
        *,
        doors: Sequence[int],
        shared: Shared,
        tasks: Tasks,
        ended: Callable[[MetricsState], None],
    ) -> None:
        """`doors`: the listening sockets. `ended` is told what a process that is no more has measured."""
        self.restarts = 0
        self.reloads = 0
        self.places: list[Worker | None] = [None] * count
        self.rows = row_count(count)
        self._name = name
        self._command = tuple(command)
        self._config = config
        self._doors = tuple(doors)
        self._shared = shared
        self._tasks = tasks
        self._ended = ended
        self._free = list(range(self.rows))
        self._row_freed = asyncio.Event()
        self._alive: set[Worker] = set()
        self._replacing = [asyncio.Lock() for _ in range(count)]
        self._backoffs = [Backoff(RESTART_MIN_S, RESTART_MAX_S, random.Random()) for _ in range(count)]
        self._stopping = False

    @property
    def alive(self) -> tuple[Worker, ...]:
        """All processes that answer: those that serve, then those that drain."""
        return tuple(sorted(self._alive, key=lambda worker: (worker.draining, worker.row)))

    async def start(self) -> None:
        """Start all. Raises ChildFailed for the first that isn't ready; then none is left."""
        starting = [
            self._tasks.spawn(self._replace(place, None), name=f"start {place}") for place in range(len(self.places))
        ]
        done, _ = await asyncio.wait(starting, return_when=asyncio.FIRST_EXCEPTION)
        failures = [error for task in done if (error := task.exception()) is not None]
        if failures:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self.stop()
            raise failures[0]

    async def reload(self) -> None:
        """Put a new process in each place. Raises ChildFailed: the rest, and the one it would have been for, stay."""
        self.reloads += 1
        for place in range(len(self.places)):
            while not await self._replace(place, self.places[place]):
                pass  # the old one died, and has just been replaced by one that may be as old as this reload

    async def stop(self) -> None:
        """Drain all."""
        self._stopping = True
        await asyncio.gather(*(self._retire(worker) for worker in self._alive))

    def hurry(self) -> None:
        """Don't wait for what is in flight."""
        for worker in self._alive:
            worker.child.signal(signal.SIGTERM)

    async def _replace(self, place: int, old: Worker | None) -> bool:
        """Start a process, give it the place of `old` once it is ready, drain `old`. False when another one has taken
        that place first. Raises ChildFailed."""
        async with self._replacing[place]:
            if self.places[place] is not old:
                return False
            worker = self.places[place] = await self._begin(place)
            self._tasks.spawn(self._watch(worker, place), name=f"watch {worker.child.name}")
        if old is not None and old.child.running:
            old.draining = True
            self._tasks.spawn(self._retire(old), name=f"drain {old.child.name}")
        return True

    async def _begin(self, place: int) -> Worker:
        while not self._free:
            self._row_freed.clear()
            await self._row_freed.wait()
        row = self._free.pop(0)
        report = os.memfd_create("nearsay-report")
        given = Inherited(self._doors, report, row, self.rows, self._shared.memory)
        child = Child(
            f"{self._name} worker {place}",
            self._command,
            self._tasks,
            log=partial(print, file=sys.stderr, flush=True),
            fds=(*self._doors, report, self._shared.memory),
            environment=given.environment(),
        )
        worker = Worker(child, row, report)
        self._alive.add(worker)
        try:
            await child.start(READY_TIMEOUT_S)
        except BaseException:
            self._bury(worker)
            raise
        return worker

    async def _watch(self, worker: Worker, place: int) -> None:
        """Until its end; if nobody wanted that, put another one in its place."""
        status = await worker.child.wait()
        self._bury(worker)
        backoff = self._backoffs[place]
        if asyncio.get_running_loop().time() - worker.since >= STABLE_S:
            backoff.reset()
        while self.places[place] is worker and not self._stopping:
            wait_s = backoff.next()
            self.restarts += 1
            _log.error("%s ended with status %d; another one in %.1f s", worker.child.name, status, wait_s)
            await asyncio.sleep(wait_s)
            if self._stopping:
                break
            try:
                await self._replace(place, worker)
            except ChildFailed as failure:
                status = failure.returncode or 0

    async def _retire(self, worker: Worker) -> None:
        worker.draining = True
        await worker.child.stop(self._config.drain_timeout_s + STOP_MARGIN_S)

    def _bury(self, worker: Worker) -> None:
        """The process has ended: what it measured is kept, its row is free."""
        self._alive.discard(worker)
        if (measured := worker.ended()) is not None:
            self._ended(measured)
        self._shared.left(worker.row)
        self._free.append(worker.row)
        self._row_freed.set()


def row_count(count: int) -> int:
    """Of processes alive at once: a reload may begin while those of the last one drain."""
    return 2 * count + 1
