"""The only place that starts tasks: keeps a reference, logs a crash once, cancels what is left on close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one owner. A task's exception is logged here unless its caller awaited it first."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task. After `close` the coroutine is closed unstarted and RuntimeError is raised."""
        if self._closed:
            coro.close()
            raise RuntimeError(f"no new task {name!r}: closed")
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task %s crashed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended; tasks that they start on the way out are refused."""
        self._closed = True
        current = asyncio.current_task()
        while left := [task for task in self._running if task is not current]:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
