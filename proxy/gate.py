"""Where requests wait for a place at an edge: for room, in fair order, or for an edge to come up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.traffic.picker import Chance
from nearsay.traffic.wait_queue import WaitQueue
from nearsay.wire.errors import Overloaded
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Endpoint, Permit
from proxy.core.limits import AttemptLimits
from proxy.core.route import Route
from proxy.edges import EdgePool

RETRY_AFTER_MS = 1000.0
EDGE_WAIT_SHARE_MAX = 0.8  # of the time left: "nobody is here" must be said before the deadline says less


class _Waiter:
    """One request in the queue; `place` becomes its permit, or None: look again."""

    __slots__ = ("attempts", "place", "route")

    def __init__(self, attempts: Attempts, route: Route) -> None:
        self.attempts = attempts
        self.route = route
        self.place: asyncio.Future[Permit | None] = asyncio.get_running_loop().create_future()

    @property
    def unheard(self) -> Permit | None:
        """The place that was found for it, when it was cancelled before it heard of that."""
        if not self.place.done() or self.place.cancelled() or self.place.exception() is not None:
            return None
        return self.place.result()


class Gate:
    """Hands out permits. Whoever gets one ends it, and then calls `freed`."""

    def __init__(
        self, pool: EdgePool, limits: AttemptLimits, *, metrics: Metrics, clock: Clock, chance: Chance
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._queue: WaitQueue[_Waiter] = WaitQueue(limits.queue)
        pool.on_change(self._changed)

    def __len__(self) -> int:
        """Requests that wait for room."""
        return len(self._queue)

    async def enter(self, attempts: Attempts, route: Route) -> Permit:
        """The place of the next attempt. Raises Overloaded (refused for load), and as Route.error says."""
        waits_until: float | None = None
        while True:
            permit = self._choose(attempts, route)
            if permit is None and (attempts.full or route.full):
                permit = await self._room(attempts, route)
            elif permit is None:
                now = self._clock()
                if waits_until is None:
                    share_s = EDGE_WAIT_SHARE_MAX * attempts.deadline.remaining_s(now)
                    waits_until = now + min(self._limits.edge_wait_ms / 1000.0, share_s)
                if route.hopeless or not await self._change(waits_until - now):
                    raise route.error(self._limits.edge_wait_ms)
            if permit is not None:
                return permit

    def second(self, attempts: Attempts, route: Route, *, stuck: bool) -> Permit | None:
        """A place for a hedge, at once or not at all."""
        now = self._clock()
        permit = attempts.hedge(route.endpoints(now), now, self._chance, stuck=stuck)
        if permit is not None:
            self._pool.began(permit, route, hedge=True)
        return permit

    def freed(self) -> None:
        """There may be room: serve who waits."""
        if not len(self._queue):
            return
        while len(self._queue):
            left = self._queue.take(self._has_room(), self._clock())
            for waiter in left.shed:
                self._refuse(waiter, "shed")
            if left.shed_dark:
                self._metrics.count("shed_dark")
            if left.served is None:
                break
            if not left.served.place.done():  # its request may have been cancelled this very turn of the loop
                left.served.place.set_result(self._choose(left.served.attempts, left.served.route))
        self._metrics.gauge("waiting_for_room", len(self._queue))

    def give_up(self, tenant: str) -> bool:
        """Refuse the newest request of whoever has most of them waiting, unless that is `tenant`."""
        waiter = self._queue.give_up(tenant)
        if waiter is not None:
            self._refuse(waiter, "given_up")
        return waiter is not None

    def _choose(self, attempts: Attempts, route: Route) -> Permit | None:
        now = self._clock()
        permit = attempts.choose(route.endpoints(now), now, self._chance)
        if permit is not None:
            self._pool.began(permit, route)
        return permit

    def _has_room(self) -> Callable[[_Waiter], bool]:
        """Whether there is a place now for one that waits. Requests of a class look at the same edges, once."""
        now, orders = self._clock(), dict[object, list[Endpoint]]()

        def able(waiter: _Waiter) -> bool:
            kind = waiter.route.kind
            if kind not in orders:
                orders[kind] = waiter.route.endpoints(now)
            return waiter.attempts.waits_for_room(orders[kind], now) is False

        return able

    async def _room(self, attempts: Attempts, route: Route) -> Permit | None:
        waiter, work = _Waiter(attempts, route), attempts.work
        given_up = self._queue.add(
            waiter,
            tenant=work.user[0],
            interactive=work.priority == "interactive",
            cost=work.chars,
            kind=waiter if attempts.number else route.kind,  # first attempts are alike
            now=self._clock(),
        )
        if given_up is not None:
            self._refuse(given_up, "given_up")
        self._metrics.gauge("waiting_for_room", len(self._queue))
        try:
            return await waiter.place
        except asyncio.CancelledError:
            if (permit := waiter.unheard) is not None:
                self._pool.ended(permit, "ignored", route)
                self.freed()
            raise
        finally:
            self._queue.discard(waiter)

    async def _change(self, timeout_s: float) -> bool:
        """Wait for any change among the edges; False when none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pool.change()
        except TimeoutError:
            return False
        return True

    def _changed(self) -> None:
        """Edges came or went: who waits for room where nobody is left must look again."""
        now = self._clock()
        for waiter in tuple(self._queue):
            nobody = waiter.attempts.waits_for_room(waiter.route.endpoints(now), now) is None
            if nobody and not waiter.route.full:
                self._queue.discard(waiter)
                if not waiter.place.done():
                    waiter.place.set_result(None)
        self.freed()

    def _refuse(self, waiter: _Waiter, name: str) -> None:
        self._metrics.count(name)
        if not waiter.place.done():
            waiter.place.set_exception(Overloaded("every edge is at its limit", retry_after_ms=RETRY_AFTER_MS))
