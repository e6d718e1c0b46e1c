"""The one thread on which an engine is opened, used and closed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
BACKGROUND_NICE = 10  # more than the process: a tenth of its weight, and preempted when one of its threads wakes
NICE_MAX = 19


class Run(Protocol):
    """Runs a blocking call somewhere and waits for it. A simulation runs it inline and lets its clock pass."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class EngineThread:
    """`Run` on a thread of its own; calls run one after another.

    One in the `background` takes what the others leave of the processor; threads and processes that an engine starts
    there do as well. Raises BrokenExecutor where threads have no priority.
    """

    def __init__(self, name: str, *, background: bool = False) -> None:
        self._pool = ThreadPoolExecutor(1, name, _yield_to_others if background else None)

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        self._pool.shutdown(wait=False)


def _yield_to_others() -> None:
    """Linux keeps a priority per thread; what the thread starts inherits it."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + BACKGROUND_NICE, NICE_MAX))
