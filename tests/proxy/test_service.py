"""The service over real links in memory: retries, cancellation, stages. HTTP is only the way in."""

from __future__ import annotations

import asyncio
import itertools

from nearsay.runtime.link import Stream
from nearsay.wire.errors import DeadlineExceeded, InternalError, Overloaded, Unavailable
from nearsay.wire.messages import Translate, Translated, TranslatedText, Update
from proxy.config import ProxyConfig
from proxy.core.limits import AttemptLimits
from tests.kit.fake_edge import FakeEdge, Script, echo, refuse, silence, translated
from tests.kit.proxy_room import ProxyRoom, proxy_room


def dying(edge: FakeEdge, *, after: int = 0) -> Script:
    """An edge that sends `after` updates and is killed."""

    async def script(stream: Stream, message: Translate) -> None:
        for number in range(after):
            await stream.send(Update(0, number, 0, "partial", "x"))
        await edge.break_links()

    return script


def retries(room: ProxyRoom) -> float:
    counters = room.proxy.metrics.snapshot()["counters"]
    return float(sum(value for name, value in counters.items() if name.startswith("retries")))


async def test_an_overloaded_edge_is_answered_for_by_another() -> None:
    edges = [FakeEdge(refuse(Overloaded(retry_after_ms=100.0))), FakeEdge(refuse(Overloaded()))]
    async with proxy_room(*edges) as room:
        edges[1].script = echo
        for _ in range(20):
            status, _, _ = await room.post({})
            assert status == 200
        refused, answered = edges
        assert len(answered.requests) == 20
        assert retries(room) == len(refused.requests)
        second = [m.attempt for m in answered.requests]
        assert second.count(2) == len(refused.requests)
        # A refusal is as dear as failure_cost_s: the edge that says no is soon asked no more.
        assert len(refused.requests) < 5


async def test_an_edge_that_dies_under_a_request_is_answered_for_by_another() -> None:
    edges = [FakeEdge(), FakeEdge()]
    for edge in edges:
        edge.script = dying(edge)
    async with proxy_room(*edges) as room:
        request = room.tasks.spawn(room.post({}), name="request")
        await edges[0].wait_for(lambda: sum(len(edge.requests) for edge in edges) >= 1)
        for edge in edges:
            edge.script = echo
        status, answer, _ = await request
        assert (status, answer["translations"][0]["text"]) == (200, "GOOD MORNING")
        assert retries(room) == 1


async def test_the_only_edge_is_asked_again_once_it_is_back() -> None:
    edge = FakeEdge()
    calls = itertools.count()

    async def dies_once(stream: Stream, message: Translate) -> None:
        await (dying(edge) if next(calls) == 0 else echo)(stream, message)

    edge.script = dies_once
    async with proxy_room(edge) as room:
        status, _, _ = await room.post({})
        assert status == 200
        assert [m.attempt for m in edge.requests] == [1, 2]
        assert edge.requests[1].budget_ms < edge.requests[0].budget_ms


async def test_an_edge_that_stays_away_is_a_503() -> None:
    edge = FakeEdge()
    edge.script = dying(edge)
    async with proxy_room(edge, config=ProxyConfig(attempts=AttemptLimits(attempts_max=2))) as room:
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "link_lost")
        assert len(edge.requests) == 2


async def test_what_is_not_retryable_is_asked_once() -> None:
    for error, status in ((InternalError("oops"), 500), (DeadlineExceeded(), 504)):
        edges = [FakeEdge(refuse(error)), FakeEdge(refuse(error))]
        async with proxy_room(*edges) as room:
            got, problem, _ = await room.post({})
            assert (got, problem["code"]) == (status, error.code)
            assert sum(len(edge.requests) for edge in edges) == 1


async def test_retries_stop_when_the_budget_is_spent() -> None:
    limits = AttemptLimits(attempts_max=10, retry_ratio=0.0, retry_floor_per_s=0.2)  # two in ten seconds
    edges = [FakeEdge(refuse(Unavailable())) for _ in range(6)]
    async with proxy_room(*edges, config=ProxyConfig(attempts=limits)) as room:
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "unavailable")
        assert sum(len(edge.requests) for edge in edges) == 3
        await room.post({})
        assert sum(len(edge.requests) for edge in edges) == 4


async def test_an_edge_that_goes_away_keeps_its_request_and_gets_no_new_one() -> None:
    release = asyncio.Event()

    async def held(stream: Stream, message: Translate) -> None:
        await release.wait()
        await echo(stream, message)

    edges = [FakeEdge(held), FakeEdge(held)]
    async with proxy_room(*edges) as room:
        first = room.tasks.spawn(room.post({}), name="first")
        either = [room.tasks.spawn(edge.wait_for(edge.asked), name="either") for edge in edges]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        [leaving] = [edge for edge in edges if edge.requests]
        [staying] = [edge for edge in edges if not edge.requests]
        leaving.publish("draining")
        await room.until(lambda: sum(e.available for e in room.proxy.pool.endpoints) == 1)
        second = room.tasks.spawn(room.post({}), name="second")
        await staying.wait_for(lambda: len(staying.requests) == 1)
        release.set()
        assert (await first)[0] == (await second)[0] == 200
        assert len(leaving.requests) == 1


async def test_the_origin_is_asked_for_where_it_is_up() -> None:
    edges = [FakeEdge(origin_pairs=("en-de",)) for _ in range(3)]
    async with proxy_room(*edges) as room:
        edges[1].publish(origin_ready=("en-de",))
        await room.until(lambda: any(e.origin_ready for e in room.proxy.pool.endpoints))
        for _ in range(6):
            assert (await room.post({"tier": "origin"}))[0] == 200
        assert len(edges[1].requests) == 6


async def test_every_moment_has_its_stage() -> None:
    now = [100.0]

    async def slow(stream: Stream, message: Translate) -> None:
        now[0] += 0.030
        await stream.finish(
            Translated(
                (TranslatedText("x", "en", "edge", "fake@1"),),
                {"segment": 1.0, "edge_queue": 3.0, "edge_run": 20.0},
                25.0,
            )
        )

    async with proxy_room(FakeEdge(slow), clock=lambda: now[0]) as room:
        _, answer, headers = await room.post({})
        assert answer["stages_ms"] == {
            "parse": 0.0,
            "queue": 0.0,
            "link": 5.0,
            "segment": 1.0,
            "edge_queue": 3.0,
            "edge_run": 20.0,
            "render": 0.0,
            "unaccounted": 1.0,
        }
        assert headers["Server-Timing"].endswith("unaccounted;dur=1, total;dur=30.000")


async def test_a_failed_attempt_counts_as_waiting() -> None:
    now = [100.0]

    async def refused(stream: Stream, message: Translate) -> None:
        now[0] += 0.010
        for edge in edges:
            edge.script = answered
        raise Unavailable

    async def answered(stream: Stream, message: Translate) -> None:
        now[0] += 0.020
        await stream.finish(translated(message, accounted_ms=20.0))

    edges = [FakeEdge(refused), FakeEdge(refused)]
    async with proxy_room(*edges, clock=lambda: now[0]) as room:
        _, answer, _ = await room.post({})
        stages = answer["stages_ms"]
        assert (stages["queue"], stages["link"], stages["edge_run"]) == (10.0, 0.0, 20.0)


async def test_nothing_leaks_when_clients_leave_at_any_moment() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge) as room:
        for turns in range(12):
            request = room.tasks.spawn(room.post({"stream": turns % 2 == 0}), name="request")
            for _ in range(turns * 3):
                await asyncio.sleep(0)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        assert room.proxy.pool.endpoints[0].in_flight == 0
        await edge.wait_for(lambda: edge.cancelled == len(edge.requests))
        edge.script = echo
        assert (await room.post({}))[0] == 200
