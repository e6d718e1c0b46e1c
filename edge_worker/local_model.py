"""One model of this edge: an engine for whatever comes and, from the first batch-class segment on, one for batch class.

A running batch can't be preempted by us, but its thread can by the kernel: the second engine runs on a thread that
yields the processor to all others (ADR 17). Until it is open, and where there is none, both classes share the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager

from edge_worker.core.fair_queue import Share
from edge_worker.lane import Lane, LocalAnswer
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import EngineInfo, LocalInput
from nearsay.text.errors import TextError
from nearsay.wire.messages import Priority

OPEN_WAIT_S = 10.0  # on the way out, for an engine that is being opened
OpenLane = Callable[[], Awaitable[Lane]]

_log = logging.getLogger(__name__)


class LocalModel:
    """Lanes of one model. `open_bulk` opens the one for batch class; None where the engine can't be had twice."""

    def __init__(self, lane: Lane, *, tasks: Tasks, open_bulk: OpenLane | None = None) -> None:
        self.info: EngineInfo = lane.engine.info
        self._lane = lane
        self._bulk: Lane | None = None
        self._tasks = tasks
        self._open_bulk = open_bulk
        self._opening: asyncio.Task[None] | None = None
        self._holders = 0
        self._let_go = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Segments in the queues."""
        return sum(lane.waiting for lane in self._lanes())

    @property
    def room(self) -> int:
        """Segments that the queues still take."""
        return sum(lane.room for lane in self._lanes())

    @property
    def running(self) -> int:
        """Segments in the batches that run."""
        return sum(lane.running for lane in self._lanes())

    def expected_ms(self, tokens: int, priority: Priority, share: Share | None = None) -> float:
        """Expected wait and run time of a segment that came now; infinite when there is no room for it."""
        return self._lane_of(priority).expected_ms(tokens, priority, share)

    async def translate(
        self, source: LocalInput, *, priority: Priority, deadline: float, share: Share | None = None
    ) -> LocalAnswer:
        """Translate one segment. When the caller is cancelled, its segment leaves the queue. Raises as `begin` does."""
        return await self.begin(source, priority=priority, deadline=deadline, share=share)

    def begin(
        self, source: LocalInput, *, priority: Priority, deadline: float, share: Share | None = None
    ) -> asyncio.Future[LocalAnswer]:
        """See `Lane.begin`."""
        if priority == "batch" and self._open_bulk is not None and self._opening is None:
            self._opening = self._tasks.spawn(self._open(self._open_bulk), name="engine for batch class")
        answer = self._lane_of(priority).begin(source, priority=priority, deadline=deadline, share=share)
        self._holders += 1
        answer.add_done_callback(lambda _: self._release())
        return answer

    @contextmanager
    def held(self) -> Iterator[None]:
        """Whoever has the model in hand may go on translating with it, though another takes its place meanwhile."""
        self._holders += 1
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        self._holders -= 1
        self._let_go.set()

    async def unused(self) -> None:
        """Wait until nobody has the model in hand."""
        while self._holders:
            self._let_go.clear()
            await self._let_go.wait()

    async def close(self) -> None:
        """Stop; whoever waits gets an error. The engines are closed after what they are doing."""
        if self._opening is not None:
            await asyncio.wait((self._opening,), timeout=OPEN_WAIT_S)
        await asyncio.gather(*(lane.close() for lane in self._lanes()))

    async def _open(self, open_bulk: OpenLane) -> None:
        try:
            self._bulk = await open_bulk()
        except (TextError, BrokenExecutor) as error:
            _log.warning("batch work shares the engine of %s: %s", self.info.model, error)

    def _lane_of(self, priority: Priority) -> Lane:
        return self._bulk if priority == "batch" and self._bulk is not None else self._lane

    def _lanes(self) -> tuple[Lane, ...]:
        return (self._lane,) if self._bulk is None else (self._lane, self._bulk)
