"""Several pieces of one request at once: all of them, or the first failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from nearsay.runtime.tasks import Tasks

T = TypeVar("T")


async def together(tasks: Tasks, work: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, name: str) -> list[T]:
    """Results in order. The first failure is raised at once, and whatever still runs is cancelled, as it is when the
    caller is."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    results: dict[int, T] = {}

    async def one(index: int, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        try:
            results[index] = await start()
        except Exception as error:  # handed to the caller below, so that it isn't logged as a crashed task
            if not over.done():
                over.set_exception(error)
        else:
            if len(results) == len(work) and not over.done():
                over.set_result(None)

    running = [tasks.spawn(one(index, start), name=name) for index, start in enumerate(work)]
    try:
        if running:
            await over
    finally:
        for task in running:
            task.cancel()
    return [results[index] for index in range(len(work))]
