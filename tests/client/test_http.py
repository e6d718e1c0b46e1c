"""What stands between a client and its proxy, and what a proxy of another version may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from nearsay.client import AsyncClient, Done, Event, SegmentDone
from nearsay.traffic.budget import RetryBudget
from nearsay.wire.errors import InternalError, LinkLost, NearsayError, Overloaded, Unavailable

DONE = b'event: done\ndata: {"translations": [{"text": "x", "source": "en", "tier": "edge", "model": "m"}], '
DONE += b'"stages_ms": {}, "request_id": "r"}\n\n'
SEGMENT = b'event: segment\ndata: {"item": 0, "segment": 0, "revision": 0, "text": "x", "later": 1}\n\n'

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def client_of(answer: Answer) -> AsyncIterator[AsyncClient]:
    app = web.Application()
    app.add_routes([web.post("/v1/translate", answer)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    no_retries = RetryBudget(ratio=0, floor_per_s=0, ttl_s=10, now=0)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with AsyncClient(url, transport="http", retries=no_retries) as client:
        yield client
    await runner.cleanup()


def answers(status: int, body: str, content_type: str = "application/json") -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, content_type=content_type)

    return answer


def streams(*chunks: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (answers(502, "<html>bad gateway", "text/html"), Unavailable, "unavailable"),
        (answers(404, "nothing here", "text/plain"), InternalError, "internal_error"),
        (
            answers(503, '{"code": "overloaded", "retry_after_ms": 5}', "application/problem+json"),
            Overloaded,
            "overloaded",
        ),
        (answers(200, "{}"), InternalError, "internal_error"),
        (answers(200, "not json"), InternalError, "internal_error"),
        (answers(200, '{"translations": [], "stages_ms": {}, "request_id": "r"}'), InternalError, "internal_error"),
    ],
)
async def test_answers_that_are_none(answer: Answer, kind: type[NearsayError], code: str) -> None:
    async with client_of(answer) as client:
        with pytest.raises(kind) as error:
            await client.translate("a", "en", "de")
    assert error.value.code == code


async def collected(client: AsyncClient) -> list[Event]:
    return [event async for event in client.stream("a", "en", "de")]


async def test_events_of_a_later_version_are_read_over() -> None:
    async with client_of(streams(b"event: hint\ndata: {}\n\n", SEGMENT[:20], SEGMENT[20:] + DONE)) as client:
        assert [type(event) for event in await collected(client)] == [SegmentDone, Done]


async def test_a_stream_that_is_cut_short() -> None:
    async with client_of(streams(SEGMENT)) as client:
        with pytest.raises(LinkLost):
            await collected(client)


async def test_an_error_in_a_stream() -> None:
    async with client_of(streams(SEGMENT, b'event: error\ndata: {"code": "deadline_exceeded"}\n\n')) as client:
        with pytest.raises(NearsayError) as error:
            await collected(client)
    assert error.value.code == "deadline_exceeded"


async def test_an_event_that_can_not_be_read() -> None:
    async with client_of(streams(b'event: segment\ndata: {"item": "x"}\n\n')) as client:
        with pytest.raises(InternalError):
            await collected(client)
