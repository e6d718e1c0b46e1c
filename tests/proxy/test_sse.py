from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from nearsay.runtime.link import Stream
from nearsay.wire.errors import InvalidRequest, Unavailable
from nearsay.wire.messages import Translate, Update
from proxy.config import ProxyConfig
from proxy.core.limits import AnswerLimits, RequestLimits
from proxy.sse import event
from tests.kit.fake_edge import FakeEdge, echo, refuse, silence
from tests.kit.proxy_room import proxy_room

BODY = {"text": "good morning", "source": "en", "target": "de", "stream": True}


def events(raw: bytes) -> list[tuple[str, Any]]:
    """Events of a whole stream; comments are `("", text)`."""
    assert raw.endswith(b"\n\n")
    found = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            found.append(("", block))
            continue
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def wire(body: dict[str, Any], version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/translate HTTP/%b\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        version.encode(),
        len(data),
        data,
    )


def test_an_event_is_two_lines_and_an_empty_one() -> None:
    assert event("done", b"{}") == b"event: done\ndata: {}\n\n"


@pytest.mark.parametrize("asked", ["body", "accept"])
async def test_segments_arrive_and_done_carries_the_whole_answer(asked: str) -> None:
    async with proxy_room(FakeEdge()) as room:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "br"} if asked == "accept" else {}
        body = BODY | {"stream": asked == "body", "text": ["good morning", "you"]}
        async with room.http.post("/v1/translate", json=body, headers=headers) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert answer.headers["X-Accel-Buffering"] == "no"
            assert answer.headers["Cache-Control"] == "no-store, no-transform"
            assert "Content-Encoding" not in answer.headers
            got = events(await answer.read())
        assert [name for name, _ in got] == ["partial", "segment"] * 3 + ["done"]
        assert got[3][1] == {
            "item": 0,
            "segment": 1,
            "revision": 1,
            "text": "MORNING",
            "gap": " ",
            "start": 0,
            "end": 7,
            "tier": "edge",
            "model": "fake@1",
        }
        done = got[-1][1]
        assert [t["text"] for t in done["translations"]] == ["GOOD MORNING", "YOU"]
        assert done["request_id"] == answer.headers["X-Request-ID"]
        assert {"parse", "link", "edge_run", "unaccounted"} <= done["stages_ms"].keys()
        # The connection serves the next request.
        assert (await room.post({}))[0] == 200


async def test_each_event_leaves_before_the_next_one_is_made() -> None:
    steps = [asyncio.Event() for _ in range(3)]

    async def stepwise(stream: Stream, message: Translate) -> None:
        for number, step in enumerate(steps):
            await step.wait()
            await stream.send(Update(0, number, 0, "segment", str(number)))
        await echo(stream, message)

    async with proxy_room(FakeEdge(stepwise)) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(wire(BODY))
        for number, step in enumerate(steps):
            step.set()
            async with asyncio.timeout(5.0):
                while f'"segment":{number}'.encode() not in await reader.readline():
                    pass
        writer.close()


async def test_a_failure_before_the_first_event_is_a_status() -> None:
    async with proxy_room(FakeEdge(refuse(InvalidRequest(code="source_too_long")))) as room:
        status, problem, headers = await room.post({"stream": True})
        assert (status, problem["code"]) == (413, "source_too_long")
        assert headers["Content-Type"] == "application/problem+json"
        status, problem, _ = await room.post({"stream": True, "text": ""})
        assert (status, problem["code"]) == (400, "empty_text")


async def test_a_failure_after_it_is_an_error_event_when_nobody_can_go_on() -> None:
    seen = asyncio.Event()  # a reject overtakes what is still on the link

    async def breaks(stream: Stream, message: Translate) -> None:
        await stream.send(Update(0, 0, 0, "partial", "G"))
        await seen.wait()
        raise Unavailable("the origin went away", code="origin_unavailable", retry_after_ms=500.0)

    edges = [FakeEdge(breaks), FakeEdge(breaks)]
    async with proxy_room(*edges) as room, room.http.post("/v1/translate", json=BODY) as answer:
        first = await answer.content.readuntil(b"\n\n")
        seen.set()
        got = events(first + await answer.read())
        assert answer.status == 200
        assert [name for name, _ in got] == ["partial", "error"]
        problem = got[-1][1]
        assert (problem["code"], problem["status"], problem["retry_after_ms"]) == ("origin_unavailable", 503, 500.0)
        assert problem["request_id"]
        assert sum(len(edge.requests) for edge in edges) == 2


async def test_the_deadline_ends_a_stream_with_an_error_event() -> None:
    async def stalls(stream: Stream, message: Translate) -> None:
        await stream.send(Update(0, 0, 0, "partial", "G"))
        await silence(stream, message)

    edge = FakeEdge(stalls)
    async with proxy_room(edge) as room, room.http.post("/v1/translate", json=BODY | {"deadline_ms": 50}) as answer:
        got = events(await answer.read())
        assert [name for name, _ in got] == ["partial", "error"]
        assert got[-1][1]["code"] == "deadline_exceeded"
        await edge.wait_for(lambda: edge.cancelled == 1)


async def test_silence_is_filled_with_heartbeats() -> None:
    async def after_three(stream: Stream, message: Translate) -> None:
        await beaten.wait()
        await echo(stream, message)

    beaten = asyncio.Event()
    config = ProxyConfig(answer=AnswerLimits(heartbeat_s=0.01))
    async with proxy_room(FakeEdge(after_three), config=config) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(wire(BODY, version="1.0"))
        async with asyncio.timeout(5.0):
            for _ in range(3):
                await reader.readuntil(b": still here\n\n")
            beaten.set()
            assert b"event: done" in await reader.read()
        writer.close()


async def test_an_old_client_gets_its_events_without_chunks() -> None:
    async with proxy_room(FakeEdge()) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(wire(BODY, version="1.0"))
        head, _, body = (await asyncio.wait_for(reader.read(), 5.0)).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert events(body)[-1][0] == "done"
        writer.close()


async def test_a_client_that_leaves_ends_the_work_at_the_edge() -> None:
    async def endless(stream: Stream, message: Translate) -> None:
        await stream.send(Update(0, 0, 0, "partial", "G"))
        await silence(stream, message)

    edge = FakeEdge(endless)
    async with proxy_room(edge) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(wire(BODY))
        await asyncio.wait_for(reader.readuntil(b"event: partial"), 5.0)
        writer.close()
        await edge.wait_for(lambda: edge.cancelled == 1)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)


async def test_a_client_that_stops_reading_stalls_its_edge_stream_and_is_cut_off() -> None:
    sent = 0

    async def flood(stream: Stream, message: Translate) -> None:
        nonlocal sent
        while True:
            await stream.send(Update(0, sent, 0, "segment", "x" * 10_000))
            sent += 1

    edge = FakeEdge(flood)
    config = ProxyConfig(answer=AnswerLimits(write_timeout_s=0.3))
    async with proxy_room(edge, config=config) as room:
        _, writer = await asyncio.open_connection("127.0.0.1", room.port, limit=1)
        writer.write(wire(BODY))
        await edge.wait_for(lambda: edge.cancelled == 1, timeout_s=20.0)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        # Socket buffers (a few MB on loopback), the link's window and its send bound; no queue of ours.
        assert sent * 10_000 < 16_000_000
        counters = room.proxy.metrics.snapshot()["counters"]
        assert counters["requests{code=cancelled,door=http}"] == 1
        writer.close()


async def test_a_slow_reader_gets_everything() -> None:
    config = ProxyConfig(request=RequestLimits(text_chars_max=1_000_000, total_chars_max=1_000_000))
    text = "word " * 4000
    async with proxy_room(FakeEdge(), config=config) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port, limit=1024)
        writer.write(wire(BODY | {"text": text}, version="1.0"))
        raw = b""
        async with asyncio.timeout(30.0):
            while chunk := await reader.read(4096):
                raw += chunk
                await asyncio.sleep(0)
        got = events(raw.partition(b"\r\n\r\n")[2])
        assert len(got) == 8001
        assert got[-1][0] == "done"
        writer.close()


async def test_a_bug_after_the_first_event_breaks_the_connection_off() -> None:
    async def buggy(request: Any, call: Any, emit: Any) -> None:
        await emit(Update(0, 0, 0, "partial", "G"))
        raise RuntimeError("a bug")

    async with proxy_room(FakeEdge()) as room:
        room.proxy.service.translate = buggy  # type: ignore[method-assign,assignment]
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(wire(BODY))
        raw = b""
        with contextlib.suppress(ConnectionResetError):
            raw = await asyncio.wait_for(reader.read(), 5.0)
        assert raw.count(b"HTTP/1.1") <= 1
        writer.close()
