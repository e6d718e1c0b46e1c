"""Hedges and streams that go on elsewhere, over real links in memory: what edges are asked, and what clients see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nearsay.runtime.link import Stream
from nearsay.traffic.concurrency import ConcurrencyRules
from nearsay.traffic.ejection import EjectionRules
from nearsay.traffic.hedging import HedgeRules
from nearsay.traffic.mode import Mode
from nearsay.wire.errors import InternalError, InvalidRequest, Overloaded
from nearsay.wire.messages import DoneSegment, SegmentText, Translate, Translated, TranslatedText, Update
from proxy.config import ProxyConfig
from proxy.core.limits import AttemptLimits
from tests.kit.fake_edge import FakeEdge, echo, model, silence, translated
from tests.kit.proxy_room import ProxyRoom, proxy_room

# Percentiles of a fake edge are microseconds; what is hedged here has been silent for this long.
LATE_MS = 20.0


def config(mode: Mode = "on", **attempts: Any) -> ProxyConfig:
    hedging = HedgeRules(mode=mode, delay_ms_min=LATE_MS, floor_per_s=100.0)
    return ProxyConfig(attempts=AttemptLimits(hedging=hedging, ejection=EjectionRules(mode="off"), **attempts))


def counted(room: ProxyRoom, name: str) -> float:
    counters = room.proxy.metrics.snapshot()["counters"]
    return float(sum(value for key, value in counters.items() if key == name or key.startswith(name + "{")))


async def informed(room: ProxyRoom) -> None:
    """The pool knows what is usual, for texts of any length and tier used here."""
    pool = room.proxy.pool.endpoints[0].pool
    await room.post({})
    for key in list(pool.latencies._sketches):
        for _ in range(100):
            pool.latencies.observe(key, 0.001, room.proxy.service._clock())


async def raced(edges: list[FakeEdge], body: dict[str, Any], script: Any, **options: Any) -> tuple[int, Any, ProxyRoom]:
    """One request whose primary is answered by `script`; the others echo."""
    async with proxy_room(*edges, **{"config": config(), **options}) as room:
        await informed(room)
        for edge in edges:
            edge.requests.clear()

        async def primary(stream: Stream, message: Translate) -> None:
            for edge in edges:
                edge.script = echo
            await script(stream, message)

        for edge in edges:
            edge.script = primary
        status, answer, _ = await room.post(body)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        for edge in edges:
            await edge.wait_for(lambda edge=edge: edge.server.in_flight == 0)  # type: ignore[misc]
        assert all(endpoint.in_flight == 0 for endpoint in room.proxy.pool.endpoints)
        return status, answer, room


async def test_a_late_request_is_hedged_and_the_loser_is_cancelled() -> None:
    edges = [FakeEdge(), FakeEdge()]
    status, answer, room = await raced(edges, {}, silence)
    assert (status, answer["translations"][0]["text"]) == (200, "GOOD MORNING")
    assert [len(edge.requests) for edge in edges] == [1, 1]  # never where its primary is
    primary, hedge = sorted((edge.requests[0] for edge in edges), key=lambda message: message.attempt)
    assert (primary.attempt, hedge.attempt) == (1, 2)
    assert primary.request_id == hedge.request_id
    assert sum(edge.cancelled for edge in edges) == 1
    assert (counted(room, "hedges_won"), counted(room, "late")) == (1, 1)
    assert counted(room, "retries") == 0


async def test_one_that_is_stuck_is_hedged_from_the_budget_of_retries() -> None:
    hedging = HedgeRules(delay_ms_min=LATE_MS, extra_load_max=0.0, floor_per_s=0.0)
    attempts = AttemptLimits(hedging=hedging, ejection=EjectionRules(mode="off", slow_excess_ms=2 * LATE_MS))
    edges = [FakeEdge(), FakeEdge()]
    status, _, room = await raced(edges, {}, silence, config=ProxyConfig(attempts=attempts))
    assert status == 200
    assert (counted(room, "late"), counted(room, "stuck"), counted(room, "hedges_won")) == (1, 1, 1)


async def test_the_first_good_answer_wins_also_the_primarys() -> None:
    edges = [FakeEdge(), FakeEdge()]

    async def slow(stream: Stream, message: Translate) -> None:
        for edge in edges:
            edge.script = silence  # the hedge's fate
        await asyncio.sleep(2 * LATE_MS / 1000)
        await stream.finish(translated(message))

    status, _, room = await raced(edges, {}, slow)
    assert status == 200
    assert sum(len(edge.requests) for edge in edges) == 2
    assert sum(edge.cancelled for edge in edges) == 1
    assert (counted(room, "hedges_won"), counted(room, "late")) == (0, 1)


async def test_a_primary_that_fails_is_answered_for_by_its_hedge() -> None:
    edges = [FakeEdge(), FakeEdge()]
    hedged = asyncio.Event()

    async def fails(stream: Stream, message: Translate) -> None:
        async def slow(stream: Stream, message: Translate) -> None:
            hedged.set()
            await asyncio.sleep(0.02)
            await echo(stream, message)

        for edge in edges:
            edge.script = slow
        await hedged.wait()
        raise InternalError

    status, answer, room = await raced(edges, {}, fails)
    assert (status, answer["translations"][0]["text"]) == (200, "GOOD MORNING")
    assert counted(room, "hedges_won") == 1


async def test_a_hedge_that_fails_changes_nothing() -> None:
    edges = [FakeEdge(), FakeEdge()]

    async def slow(stream: Stream, message: Translate) -> None:
        async def refuses(stream: Stream, message: Translate) -> None:
            raise Overloaded

        for edge in edges:
            edge.script = refuses
        await asyncio.sleep(2 * LATE_MS / 1000)
        await stream.finish(translated(message))

    status, _, room = await raced(edges, {}, slow)
    assert status == 200
    assert (counted(room, "hedges_won"), counted(room, "retries")) == (0, 0)


async def test_both_failing_is_the_primarys_error() -> None:
    edges = [FakeEdge(), FakeEdge()]
    hedged = asyncio.Event()

    async def fails(stream: Stream, message: Translate) -> None:
        async def refuses(stream: Stream, message: Translate) -> None:
            hedged.set()
            raise InternalError("the hedge's")

        for edge in edges:
            edge.script = refuses
        await hedged.wait()
        raise InvalidRequest(code="source_too_long")

    status, problem, _ = await raced(edges, {}, fails)
    assert (status, problem["code"]) == (413, "source_too_long")


@pytest.mark.parametrize("body", [{"priority": "batch"}, {"session": "s"}, {"stream": True}])
async def test_what_may_not_run_twice_is_not_hedged(body: dict[str, Any]) -> None:
    async def slow(stream: Stream, message: Translate) -> None:
        await asyncio.sleep(3 * LATE_MS / 1000)
        await stream.finish(translated(message))

    edges = [FakeEdge(), FakeEdge()]
    async with proxy_room(*edges, config=config()) as room:
        await informed(room)
        for edge in edges:
            edge.requests.clear()
            edge.script = slow
        async with room.http.post("/v1/translate", json={"text": "a", "source": "en", "target": "de"} | body) as answer:
            assert answer.status == 200
            await answer.read()
        assert sum(len(edge.requests) for edge in edges) == 1


@pytest.mark.parametrize(("mode", "late"), [("dark", 1), ("off", 0)])
async def test_dark_counts_what_would_be_hedged(mode: Mode, late: int) -> None:
    async def slow(stream: Stream, message: Translate) -> None:
        await asyncio.sleep(3 * LATE_MS / 1000)
        await stream.finish(translated(message))

    edges = [FakeEdge(), FakeEdge()]
    status, _, room = await raced(edges, {}, slow, config=config(mode))
    assert status == 200
    assert sum(len(edge.requests) for edge in edges) == 1
    assert counted(room, "late") == late


async def test_nothing_leaks_when_clients_leave_while_two_tries_run() -> None:
    edges = [FakeEdge(), FakeEdge()]
    async with proxy_room(*edges, config=config()) as room:
        await informed(room)
        for edge in edges:
            edge.requests.clear()
            edge.script = silence
        for turns in range(8):
            request = room.tasks.spawn(room.post({}), name="request")
            await asyncio.sleep(turns * LATE_MS / 4000)
            if turns == 7:  # surely with both under way
                for edge in edges:
                    await edge.wait_for(lambda edge=edge: edge.server.in_flight == 1)  # type: ignore[misc]
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        for edge in edges:
            await edge.wait_for(lambda edge=edge: edge.cancelled == len(edge.requests))  # type: ignore[misc]
        assert all(endpoint.in_flight == 0 for endpoint in room.proxy.pool.endpoints)
        assert sum(len(edge.requests) for edge in edges) > 8, "nothing was hedged"


# ---- streams ---------------------------------------------------------------------------------------------------------

STREAMED = {"text": "one two three", "source": "en", "target": "de", "stream": True}


def events(body: bytes) -> list[tuple[str, Any]]:
    lines = [block.split(b"\n") for block in body.strip().split(b"\n\n") if block.startswith(b"event: ")]
    return [(name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: "))) for name, data in lines]


async def streamed(room: ProxyRoom) -> list[tuple[str, Any]]:
    async with room.http.post("/v1/translate", json=STREAMED) as answer:
        assert answer.status == 200
        return events(await answer.read())


def word(number: int, text: str, name: str = "en-de-edge@1", revision: int = 0) -> Update:
    start = (0, 4, 8)[number]
    return Update(0, number, revision, "segment", text, " " if number else "", start, start + 3, "edge", name)


async def two_words_and_gone(edge: FakeEdge, stream: Stream) -> None:
    await stream.send(word(0, "ONE"))
    await stream.send(word(1, "TWO"))
    await asyncio.sleep(0.02)  # on their way
    await edge.break_links()


def cut_after_two(
    edges: list[FakeEdge], then: Callable[[Stream, Translate], Awaitable[None]]
) -> Callable[[Stream, Translate], Awaitable[None]]:
    async def script(stream: Stream, message: Translate) -> None:
        [edge] = [edge for edge in edges if message in edge.requests]
        for each in edges:
            each.script = then
        await two_words_and_gone(edge, stream)

    return script


async def test_a_stream_whose_edge_is_lost_goes_on_at_another() -> None:
    edges = [FakeEdge(), FakeEdge()]

    async def goes_on(stream: Stream, message: Translate) -> None:
        await stream.send(word(2, "THREE"))
        texts = [*(done.text for done in message.done), "THREE"]
        whole = TranslatedText(" ".join(texts), "en", "edge", "en-de-edge@1", (SegmentText("ONE", 0, 3, "edge", "m"),))
        await stream.finish(Translated((whole,), {}, 0.0))

    for edge in edges:
        edge.script = cut_after_two(edges, goes_on)
    async with proxy_room(*edges, config=config()) as room:
        got = await streamed(room)
        assert [(name, data["segment"], data["revision"], data["text"]) for name, data in got[:-1]] == [
            ("segment", 0, 0, "ONE"),
            ("segment", 1, 0, "TWO"),
            ("segment", 2, 0, "THREE"),
        ]
        assert got[-1][0] == "done" and got[-1][1]["translations"][0]["text"] == "ONE TWO THREE"
        assert counted(room, "retries") == 1
    [asked] = [message for edge in edges for message in edge.requests if message.attempt == 2]
    assert asked.models == ("en-de-edge@1",)
    assert asked.done == (
        DoneSegment(0, 0, 3, "ONE", "edge", "en-de-edge@1"),
        DoneSegment(0, 4, 7, "TWO", "edge", "en-de-edge@1"),
    )


async def test_where_nobody_can_go_on_the_client_is_told_to_begin_again() -> None:
    edges = [FakeEdge(), FakeEdge()]

    async def restarts(stream: Stream, message: Translate) -> None:
        await stream.send(Update(0, 0, 0, "restart", ""))
        for number, text in enumerate(("EINS", "ZWEI", "DREI")):
            await stream.send(word(number, text, "en-de-edge@2"))
        await stream.finish(Translated((TranslatedText("EINS ZWEI DREI", "en", "edge", "en-de-edge@2"),), {}, 0.0))

    for edge in edges:
        edge.script = cut_after_two(edges, restarts)
    async with proxy_room(*edges, config=config()) as room:
        got = await streamed(room)
    assert [name for name, _ in got] == ["segment", "segment", "restart", "segment", "segment", "segment", "done"]
    assert got[2][1] == {}
    assert [(data["revision"], data["text"]) for _, data in got[3:6]] == [(1, "EINS"), (1, "ZWEI"), (0, "DREI")]


async def test_an_edge_with_the_same_models_is_preferred() -> None:
    other = FakeEdge(models=[model("en", "de"), model("de", "en")])
    newer = FakeEdge(models=[msgspec.structs.replace(model("en", "de"), version="2")])
    first = FakeEdge()
    edges = [first, newer, other]

    async def ends(stream: Stream, message: Translate) -> None:
        await stream.finish(translated(message))

    for edge in edges:
        edge.script = cut_after_two(edges, ends)
    async with proxy_room(*edges, config=config()) as room:
        for endpoint in room.proxy.pool.endpoints[1:]:  # so that the first attempt goes to the first edge
            endpoint.state = "starting"
        request = room.tasks.spawn(streamed(room), name="request")
        await first.wait_for(first.asked)
        for endpoint in room.proxy.pool.endpoints[1:]:
            endpoint.state = "ready"
        await request
    assert (len(newer.requests), len(other.requests)) == (0, 1)


async def test_an_origin_stands_in_for_an_edge_model_and_says_so() -> None:
    edges = [FakeEdge(), FakeEdge(models=(), origin_pairs=("en-de",))]
    async with proxy_room(*edges, config=config()) as room:
        edges[1].publish(origin_ready=("en-de",))
        await room.until(lambda: any(e.origin_ready for e in room.proxy.pool.endpoints))
        await edges[0].close()
        await room.until(lambda: sum(e.available for e in room.proxy.pool.endpoints) == 1)
        status, answer, _ = await room.post({"tier": "edge"})
        [translation] = answer["translations"]
        assert (status, translation["tier"]) == (200, "origin")
        assert (translation["degraded"], translation["degraded_reason"]) == (True, "edge_unavailable")
        assert [message.tier for message in edges[1].requests] == ["origin"]


async def test_nobody_at_all_is_said_before_the_deadline() -> None:
    edge = FakeEdge()
    async with proxy_room(edge) as room:
        await edge.close()
        await room.until(lambda: not any(e.available for e in room.proxy.pool.endpoints))
        status, problem, headers = await room.post({"deadline_ms": 100})
        assert (status, problem["code"]) == (503, "edge_unavailable")
        assert int(headers["Retry-After"]) >= 1


async def test_limits_that_nobody_reaches_cost_nothing() -> None:
    rules = ConcurrencyRules(limit_first=1, limit_min=1, limit_max=1)
    async with proxy_room(FakeEdge(), config=ProxyConfig(attempts=AttemptLimits(concurrency=rules))) as room:
        for _ in range(5):
            assert (await room.post({}))[0] == 200
        assert counted(room, "shed") == counted(room, "given_up") == 0
