"""The services of one machine: started together, restarted one by one (never silently), drained in order.

Order is that of the data path, the far end first: origin, edge, proxy. They stop the other way round, so that each can
still finish what it was asked. Invariant: when `stop` returns, no child is left.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from nearsay.cli.restarts import Restarts
from nearsay.runtime.child import Child, ChildFailed, Ready
from nearsay.runtime.tasks import Tasks

READY_TIMEOUT_S = 120.0  # a cold disk, a large model
DRAIN_TIMEOUT_S = 35.0  # of each service; more than its own drain takes

Say = Callable[[str], None]


class Supervisor:
    """Runs `commands` (name to command line, in start order). `say` gets a line for each thing a person should know."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        tasks: Tasks,
        say: Say,
        log: Say | None = None,
        hidden: Collection[str] = (),
        drain_timeout_s: float = DRAIN_TIMEOUT_S,
    ) -> None:
        self.children = {
            name: Child(name, command, tasks, hidden=hidden, log=log) for name, command in commands.items()
        }
        self.restarts = {name: Restarts() for name in commands}
        self._tasks = tasks
        self._say = say
        self._drain_timeout_s = drain_timeout_s

    async def start(self, on_ready: Callable[[Ready], None] = lambda _: None) -> None:
        """Start all at once, wait until each is ready. Raises ChildFailed for the first that isn't."""

        async def start_one(child: Child) -> ChildFailed | None:
            failure = await self._started(child)
            if child.ready is not None:
                on_ready(child.ready)
            return failure

        if (failure := await self._first_failure(start_one)) is not None:
            raise failure

    async def watch(self) -> ChildFailed:
        """Restart what dies; returns only when one died too often."""
        failure = await self._first_failure(self._keep_up)
        assert failure is not None, "_keep_up goes on until it fails"
        return failure

    async def stop(self) -> None:
        """Drain the proxy, then the edge, then the origin."""
        for name, child in reversed(self.children.items()):
            ended_before = not child.running  # and was spoken of then
            returncode = await child.stop(self._drain_timeout_s)
            if not ended_before and returncode != 0:
                self._say(f"{name} ended with status {returncode}")

    def kill(self) -> None:
        """End all at once, without a drain."""
        for child in self.children.values():
            child.signal(signal.SIGKILL)

    async def _keep_up(self, child: Child) -> ChildFailed:
        restarts = self.restarts[child.name]
        while True:
            await child.wait()
            failure: ChildFailed | None = child.failure()
            while failure is not None:
                wait_s = restarts.died(_now())
                if wait_s is None:
                    return failure
                self._say(f"{failure}\nstarting {child.name} again in {wait_s:g} s (restart {restarts.count})")
                await asyncio.sleep(wait_s)
                failure = await self._started(child)
            self._say(f"{child.name} is ready again")

    async def _started(self, child: Child) -> ChildFailed | None:
        try:
            await child.start(READY_TIMEOUT_S)
        except ChildFailed as failure:
            return failure
        self.restarts[child.name].up(_now())
        return None

    async def _first_failure(
        self, work: Callable[[Child], Coroutine[Any, Any, ChildFailed | None]]
    ) -> ChildFailed | None:
        """Run `work` on every child at once; the first failure, after which nothing of `work` goes on."""
        running = [self._tasks.spawn(work(child), name=f"supervise {child.name}") for child in self.children.values()]
        try:
            for done in asyncio.as_completed(running):
                if (failure := await done) is not None:
                    return failure
            return None
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
