"""One engine of this edge on its thread: micro-batches across requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf

import msgspec

from edge_worker.core.batcher import Batcher, BatchLimits, Row
from edge_worker.core.fair_queue import Share
from edge_worker.engine_thread import Run
from nearsay.runtime.clock import Clock
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalEngine, LocalInput, LocalOutput
from nearsay.wire.errors import DeadlineExceeded, InternalError, NearsayError, Unavailable
from nearsay.wire.messages import Priority

_log = logging.getLogger(__name__)


class LocalAnswer(msgspec.Struct, frozen=True):
    """One translation, and when its batch began and ended to run (monotonic seconds)."""

    output: LocalOutput
    began: float
    ended: float


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    source: LocalInput
    answer: asyncio.Future[LocalAnswer]


class Lane:
    """Batches form while the engine is busy; when it is idle, a segment waits for nothing but this turn of the loop."""

    def __init__(
        self, engine: LocalEngine, *, run: Run, limits: BatchLimits, clock: Clock, tasks: Tasks, name: str
    ) -> None:
        self.engine = engine
        self._run = run
        self._clock = clock
        rows_max = min(limits.rows_max, engine.batch_max)
        self._batcher: Batcher[_Waiter] = Batcher(msgspec.structs.replace(limits, rows_max=rows_max))
        self._work = asyncio.Event()
        self._loop = tasks.spawn(self._serve(), name=f"engine of {name}")

    @property
    def waiting(self) -> int:
        """Segments in the queue."""
        return len(self._batcher)

    @property
    def room(self) -> int:
        """Segments that the queue still takes."""
        return self._batcher.limits.rows_waiting_max - len(self._batcher)

    @property
    def running(self) -> int:
        """Segments in the batch that runs."""
        return len(self._batcher.running)

    def expected_ms(self, tokens: int, priority: Priority, share: Share | None = None) -> float:
        """Expected wait and run time of a segment that came now; infinite when there is no room for it."""
        if not self.room:
            return inf
        wait_ms = self._batcher.wait_ms(self._clock(), interactive=priority == "interactive", share=share)
        return wait_ms + self._batcher.cost.run_ms(tokens, tokens)

    def begin(
        self, source: LocalInput, *, priority: Priority, deadline: float, share: Share | None = None
    ) -> asyncio.Future[LocalAnswer]:
        """Queue one segment; cancelling its answer takes it out of the queue.

        Segments of one request have `share` in common: requests get the engine in equal parts.
        Raises Overloaded (queue full) at once; the answer DeadlineExceeded (it can't finish in time), InternalError
        (the engine failed), Unavailable (the edge stops).
        """
        waiter = _Waiter(source, asyncio.get_running_loop().create_future())
        interactive = priority == "interactive"
        row = Row(waiter, tokens=len(source.ids) + 1, interactive=interactive, deadline=deadline, share=share)
        self._batcher.add(row)
        self._work.set()
        waiter.answer.add_done_callback(lambda _: self._batcher.discard(row))
        return waiter.answer

    async def close(self) -> None:
        """Stop; whoever waits gets an error. The engine is closed after what it is doing."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        _fail(self._batcher.clear(), _closed)
        await self._run(self.engine.close)

    async def _serve(self) -> None:
        """Take, run, hand out: one batch after another."""
        while True:
            await self._work.wait()
            batch, expired = self._batcher.take(self._clock())
            _fail(expired, lambda: DeadlineExceeded("it could not be translated in time"))
            if not batch:
                if not self.waiting:
                    self._work.clear()
                continue
            try:
                await self._run_batch(batch)
            except asyncio.CancelledError:
                _fail(batch, _closed)
                raise

    async def _run_batch(self, batch: list[Row[_Waiter]]) -> None:
        sources = [row.item.source for row in batch]
        began = self._clock()
        try:
            outputs = await self._run(lambda: self.engine.translate(sources))
        except Exception:
            # Any fault of a native engine: this batch fails, the queue goes on.
            _log.exception("the engine of %s failed", self.engine.info.model)
            self._batcher.done(None)
            _fail(batch, lambda: InternalError("the local engine failed"))
            return
        ended = self._clock()
        self._batcher.done((ended - began) * 1000.0)
        for row, output in zip(batch, outputs, strict=True):
            if not row.item.answer.done():
                row.item.answer.set_result(LocalAnswer(output, began, ended))


def _closed() -> NearsayError:
    return Unavailable("the edge worker stops", code="draining")


def _fail(rows: list[Row[_Waiter]], error: Callable[[], NearsayError]) -> None:
    for row in rows:
        if not row.item.answer.done():
            row.item.answer.set_exception(error())
