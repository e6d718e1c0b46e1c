"""Runs with several waiters: the work is done once, everybody gets its outcome, and it ends when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from edge_worker.core.coalesce import CoalesceLimits, Coalescer, Flight, Who
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import DeadlineExceeded

T = TypeVar("T")
Listen = Callable[[Any], None]
Begin = Callable[[Listen], "asyncio.Future[T]"]  # begins at once; cancelling what it returns ends the work


class _Run:
    """What it publishes goes to all who listen, to late ones from where it is."""

    def __init__(self, begin: Begin[Any]) -> None:
        self.latest: Any = None
        self.listeners: list[Listen] = []
        self.outcome = begin(self.publish)

    def publish(self, state: Any) -> None:
        self.latest = state
        for listen in tuple(self.listeners):
            listen(state)


class SharedRuns:
    """What this edge is working on, by key."""

    def __init__(self, limits: CoalesceLimits, *, metrics: Metrics, tasks: Tasks) -> None:
        self._flights: Coalescer[_Run] = Coalescer(limits)
        self._metrics = metrics
        self._tasks = tasks

    def __len__(self) -> int:
        """Runs that may be shared now."""
        return len(self._flights)

    async def run(self, key: Hashable, who: Who, begin: Begin[T], listen: Listen | None = None) -> T:
        """The outcome of the work that `begin` starts, or of equal work that runs already; `listen` gets its states.

        The run has its first waiter's deadline: who joined it and has more time works by himself when that passes.
        Raises what the work raises.
        """
        flight = self._flights.join(key, who)
        joined = flight is not None
        if flight is None:
            flight = self._open(key, who, begin)
        else:
            self._metrics.count("coalesced")
        run = flight.run
        if listen is not None:
            run.listeners.append(listen)
            if run.latest is not None:
                listen(run.latest)
        try:
            outcome: T = await asyncio.shield(run.outcome)
            return outcome
        except DeadlineExceeded:
            if not joined:
                raise
        finally:
            if listen is not None:
                run.listeners.remove(listen)
            self._left(flight, who)
        return await begin(listen or _ignore)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Future[T]:
        """For a `begin` whose work is a coroutine: its outcome, as a future that ends the task when it is cancelled."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                answer = await work
            except Exception as error:  # handed to those who wait
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(answer)

        task = self._tasks.spawn(run(), name=name)
        task.add_done_callback(lambda _: outcome.cancel())  # no effect on one that is done
        outcome.add_done_callback(lambda _: task.cancel())
        return outcome

    def _open(self, key: Hashable, who: Who, begin: Begin[Any]) -> Flight[_Run]:
        flight = self._flights.open(key, who, _Run(begin))

        def over(outcome: asyncio.Future[Any]) -> None:
            self._flights.close(flight)
            if not outcome.cancelled():
                outcome.exception()  # heard of, though everybody may have left

        flight.run.outcome.add_done_callback(over)
        return flight

    def _left(self, flight: Flight[_Run], who: Who) -> None:
        grace_s = self._flights.leave(flight, who)
        if grace_s is None or flight.run.outcome.done():
            return
        if grace_s == 0.0:
            self._end(flight)
        else:
            asyncio.get_running_loop().call_later(grace_s, self._end, flight)

    def _end(self, flight: Flight[_Run]) -> None:
        if not flight.waiters:
            self._flights.close(flight)
            flight.run.outcome.cancel()


def _ignore(_: Any) -> None:
    return None
