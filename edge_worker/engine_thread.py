"""The one thread on which an engine is opened, used and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Run(Protocol):
    """Runs a blocking call somewhere and waits for it. A simulation runs it inline and lets its clock pass."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class EngineThread:
    """`Run` on a thread of its own; calls run one after another."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        self._pool.shutdown(wait=False)
