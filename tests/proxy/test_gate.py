"""Waiting for room at an edge, in fair order, over real links in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from nearsay.runtime.link import Stream
from nearsay.traffic.concurrency import ConcurrencyRules
from nearsay.traffic.wait_queue import QueueRules
from nearsay.wire.errors import NearsayError, Overloaded
from nearsay.wire.messages import Translate, Translated
from proxy.config import ProxyConfig
from proxy.core.limits import AttemptLimits
from proxy.core.stages import Timeline
from proxy.request import ValidRequest
from proxy.service import Call
from tests.kit.fake_edge import FakeEdge, echo
from tests.kit.proxy_room import ProxyRoom, proxy_room

ONE = ConcurrencyRules(limit_first=1, limit_min=1, limit_max=1)


def config(queue: QueueRules | None = None, **fields: Any) -> ProxyConfig:
    return ProxyConfig(attempts=AttemptLimits(concurrency=ONE, queue=queue or QueueRules()), **fields)


class Held(FakeEdge):
    """An edge that answers one request whenever it is told to."""

    def __init__(self) -> None:
        super().__init__(self._held)
        self.turns = asyncio.Semaphore(0)

    async def _held(self, stream: Stream, message: Translate) -> None:
        await self.turns.acquire()
        await echo(stream, message)

    @property
    def order(self) -> list[str]:
        return [message.texts[0] for message in self.requests]


def ask(room: ProxyRoom, text: str, tenant: str = "", **fields: Any) -> asyncio.Task[Translated]:
    fields = {"priority": "interactive", "deadline_ms": 10_000.0} | fields
    request = ValidRequest((text,), "en", "de", "auto", **fields, stream=False, segments=False, session="", chars=9)
    call = Call(text, Timeline(arrived=room.proxy.service._clock()), tenant=tenant or text[0])
    return room.tasks.spawn(_quiet(room.proxy.service.translate(request, call)), name=text)


async def _quiet(answer: Any) -> Any:
    try:
        return await answer
    except NearsayError as error:
        return error


async def settled(room: ProxyRoom, waiting: int) -> None:
    """Until so many wait for room."""
    async with asyncio.timeout(5.0):
        while len(room.proxy.service._gate) != waiting:  # noqa: ASYNC110 - a turn of the loop is all it takes
            await asyncio.sleep(0)


async def test_requests_wait_for_room_and_tenants_take_turns() -> None:
    edge = Held()
    async with proxy_room(edge, config=config()) as room:
        tasks = [ask(room, "a0")]
        await edge.wait_for(edge.asked)
        tasks += [ask(room, f"a{number}") for number in range(1, 30)]
        await settled(room, 29)
        tasks.append(ask(room, "b0"))
        tasks.append(ask(room, "c0", priority="batch"))
        await settled(room, 31)
        assert edge.order == ["a0"]
        for _ in tasks:
            edge.turns.release()
        await asyncio.gather(*tasks)
        assert all(isinstance(task.result(), Translated) for task in tasks)
        assert edge.order.index("b0") <= 6  # one turn of the flood's
        assert edge.order[-1] == "c0"
        assert room.proxy.pool.endpoints[0].in_flight == 0


async def test_a_full_queue_refuses_the_flood_not_its_victim() -> None:
    edge = Held()
    async with proxy_room(edge, config=config(QueueRules(waiting_max=4))) as room:
        tasks = [ask(room, "a0")]
        await edge.wait_for(edge.asked)
        tasks += [ask(room, f"a{number}") for number in range(1, 8)]
        await settled(room, 4)
        victim = ask(room, "b0")
        await asyncio.wait([victim], timeout=0.01)
        for _ in range(9):
            edge.turns.release()
        await asyncio.gather(*tasks, victim)
        assert isinstance(victim.result(), Translated)
        refused = [task.result() for task in tasks if isinstance(task.result(), Overloaded)]
        assert len(refused) == 4 and all(error.retry_after_ms for error in refused)


async def test_past_all_bounds_a_tenant_with_less_still_gets_in() -> None:
    edge = Held()
    async with proxy_room(edge, config=config(in_flight_max=6)) as room:
        tasks = [ask(room, "a0")]
        await edge.wait_for(edge.asked)
        tasks += [ask(room, f"a{number}") for number in range(1, 7)]
        await settled(room, 5)
        victim = ask(room, "b0")
        await asyncio.wait([victim], timeout=0.01)
        assert not victim.done()
        for _ in range(8):
            edge.turns.release()
        await asyncio.gather(*tasks, victim)
        assert isinstance(victim.result(), Translated)
        assert Counter(type(task.result()) for task in tasks) == {Translated: 5, Overloaded: 2}


async def test_one_that_leaves_the_queue_leaves_nothing_behind() -> None:
    edge = Held()
    async with proxy_room(edge, config=config()) as room:
        first = ask(room, "a0")
        await edge.wait_for(edge.asked)
        second, third = ask(room, "a1"), ask(room, "a2")
        await settled(room, 2)
        second.cancel()
        await settled(room, 1)
        # The place is free, found for the third, and the third leaves in the very same turn of the loop.
        edge.turns.release()
        await first
        third.cancel()
        await asyncio.gather(second, third, return_exceptions=True)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        assert room.proxy.pool.endpoints[0].in_flight == 0
        fourth = ask(room, "a3")
        edge.turns.release()
        edge.turns.release()
        assert isinstance(await fourth, Translated)


async def test_waiting_ends_at_the_deadline() -> None:
    edge = Held()
    async with proxy_room(edge, config=config()) as room:
        first = ask(room, "a0")
        await edge.wait_for(edge.asked)
        late = ask(room, "a1", deadline_ms=30.0)
        error = await late
        assert isinstance(error, NearsayError) and error.code == "deadline_exceeded"
        assert len(room.proxy.service._gate) == 0
        edge.turns.release()
        await first


async def test_who_waits_for_an_edge_that_goes_away_is_told() -> None:
    edge = Held()
    attempts = AttemptLimits(concurrency=ONE, edge_wait_ms=20.0, attempts_max=1)
    async with proxy_room(edge, config=ProxyConfig(attempts=attempts)) as room:
        first = ask(room, "a0")
        await edge.wait_for(edge.asked)
        waiting = ask(room, "a1")
        await settled(room, 1)
        await edge.close()
        errors = await asyncio.gather(first, waiting)
        assert [error.code for error in errors if isinstance(error, NearsayError)] == ["link_lost", "edge_unavailable"]


async def test_one_tenant_alone_can_not_fill_the_proxy_for_another() -> None:
    edge = Held()
    async with proxy_room(edge, config=ProxyConfig(in_flight_max=10)) as room:
        edge.turns.release()
        assert isinstance(await ask(room, "b0"), Translated)
        tasks = [ask(room, f"a{number}") for number in range(12)]
        await edge.wait_for(lambda: len(edge.requests) == 9)  # eight of ten are his at most
        victim = ask(room, "b1")
        await edge.wait_for(lambda: "b1" in edge.order)
        for _ in range(10):
            edge.turns.release()
        await asyncio.gather(*tasks, victim)
        assert isinstance(victim.result(), Translated)
        assert Counter(type(task.result()) for task in tasks) == {Translated: 8, Overloaded: 4}
