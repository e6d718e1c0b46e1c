"""Services as child processes, for cases that measure the real thing."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from nearsay.cli.ports import HOST
from nearsay.cli.stack import StackOptions, make_stack
from nearsay.runtime.child import Child
from nearsay.runtime.tasks import Tasks

START_TIMEOUT_S = 60.0


class Services(msgspec.Struct, frozen=True):
    """Running services: the proxy's URL, the process ids by name."""

    url: str
    pids: dict[str, int]


@asynccontextmanager
async def stack(options: StackOptions, tasks: Tasks) -> AsyncIterator[Services]:
    """Proxy, edge worker and, if asked for, origin; stopped on the way out."""
    with tempfile.TemporaryDirectory(prefix="nearsay-bench-") as folder:
        made = make_stack(options, Path(folder))
        pids: dict[str, int] = {}
        async with AsyncExitStack() as running:
            for name, command in made.commands.items():
                started = await running.enter_async_context(_started(name, command, tasks))
                assert started.pid is not None
                pids[name] = started.pid
            yield Services(made.url, pids)


@asynccontextmanager
async def child(name: str, command: Sequence[str], tasks: Tasks) -> AsyncIterator[str]:
    """One service; its URL."""
    async with _started(name, command, tasks) as started:
        assert started.ready is not None
        yield f"http://{HOST}:{started.ready.port}"


@asynccontextmanager
async def _started(name: str, command: Sequence[str], tasks: Tasks) -> AsyncIterator[Child]:
    started = Child(name, command, tasks)
    await started.start(START_TIMEOUT_S)
    try:
        yield started
    finally:
        await started.stop(START_TIMEOUT_S)
