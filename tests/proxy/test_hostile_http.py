"""Bytes that no honest client sends, to a proxy's port as it runs: one refusal and an end, or answers in order; nothing
is kept that grows, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nearsay.runtime.link import Stream
from nearsay.runtime.service import run_service
from nearsay.runtime.stop import Stop
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Translate, Update
from proxy.app import Proxy, build
from proxy.config import ProxyConfig
from proxy.core.keys import key_hash
from proxy.core.limits import AnswerLimits
from proxy.core.routing_config import Tenant
from tests.kit.fake_edge import FakeEdge

WITHIN_S = 20.0
BODY = b'{"text":"good morning","source":"en","target":"de"}'
SIZE = b"Content-Length: %d" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
WHOLE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def post(*headers: bytes, body: bytes = BODY) -> bytes:
    lines = [b"POST /v1/translate HTTP/1.1", b"Host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body + HIDDEN


def chunks(first: bytes, *, after: bytes = b"\r\n") -> bytes:
    return post(CHUNKED, body=first + BODY + after + b"0\r\n\r\n")


# Where two readers could see the end of a request in two places, there must be no second request.
AMBIGUOUS = {
    "length and chunks": post(SIZE, CHUNKED, body=b"0\r\n\r\n"),
    "chunks and length": post(CHUNKED, SIZE, body=b"0\r\n\r\n"),
    "two lengths": post(SIZE, b"Content-Length: 0"),
    "one length twice": post(SIZE, SIZE),
    "a list of lengths": post(b"Content-Length: 51, 51"),
    "a signed length": post(b"Content-Length: +51"),
    "a negative length": post(b"Content-Length: -1"),
    "a length in hex": post(b"Content-Length: 0x33"),
    "an unknown coding": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "chunked but not last": post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
    "two codings": post(CHUNKED, b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
    "a space before the colon": post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"),
    "a vertical tab": post(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
    "a folded line": post(SIZE, b"X-A: b", b" Transfer-Encoding: chunked"),
    "a folded value": post(SIZE, b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n"),
    "a chunk size with 0x": chunks(b"0x33\r\n"),
    "a negative chunk": chunks(b"-1\r\n"),
    "a chunk size with a space": chunks(b"33 \r\n"),
    "a chunk too large to count": chunks(b"f" * 17 + b"\r\n"),
    "a chunk size without CR": chunks(b"33\n"),
    "a chunk longer than said": chunks(b"33\r\n", after=b"xx"),
    "a NUL in a chunk extension": chunks(b"33;a=\0\r\n"),
    "a length in the trailer": post(CHUNKED, body=WHOLE[:-2] + b"Content-Length: 5\r\n\r\n"),
    "a NUL in a value": post(SIZE, b"X-A: a\0b"),
    "a NUL in a name": post(SIZE, b"X\0A: b"),
    "a CR in a value": post(SIZE, b"X-A: a\rb"),
    "lines without CR": post(SIZE).replace(b"\r\n", b"\n"),
    "a name with a space": post(SIZE, b"X A: b"),
    "a line without colon": post(SIZE, b"XA"),
    "no name": post(SIZE, b": b"),
    "chunks in HTTP/1.0": post(CHUNKED, body=WHOLE).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "no version": b"GET /v1/languages\r\n\r\n" + HIDDEN,
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "no host": b"GET /v1/languages HTTP/1.1\r\n\r\n" + HIDDEN,
    "two hosts": b"GET /v1/languages HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + HIDDEN,
    "a header of 9 KB": post(SIZE, b"X-A: " + b"a" * 9000),
    "300 headers": post(SIZE, *(b"X-%d: a" % number for number in range(300))),
    "a path of 9 KB": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
}


@asynccontextmanager
async def listening(edge: FakeEdge, tenants: dict[str, Tenant] | None = None, **config: object) -> AsyncIterator[int]:
    """A proxy as it runs; the port."""
    values = ProxyConfig(edges=(await edge.start(),), port=0, admin_port=0, drain_idle_s=0.01, **config)  # type: ignore[arg-type]
    stop, tasks, ready = Stop(), Tasks(), asyncio.get_running_loop().create_future()
    proxy: Proxy = build(values, tenants=tenants or {})
    service = tasks.spawn(run_service(proxy, stop=stop, announce=ready.set_result), name="service")
    try:
        yield json.loads(await asyncio.wait_for(ready, WITHIN_S))["port"]
        stop.ask()
        await asyncio.wait_for(service, WITHIN_S)
    finally:
        await tasks.close()
        await edge.close()


async def exchange(port: int, sent: bytes) -> bytes:
    """What comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), WITHIN_S)
    finally:
        writer.close()


async def test_an_ambiguous_request_is_one_refusal_and_the_end() -> None:
    edge = FakeEdge()
    async with listening(edge) as port:
        for what, sent in AMBIGUOUS.items():
            answer = await exchange(port, sent)
            assert re.findall(rb"HTTP/1\.[01] (\d+)", answer) == [b"400"], (what, answer)
            assert b"not_found" not in answer, what
        assert edge.requests == []
        sound = post(SIZE, b"X-Request-ID: sound") + HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert re.findall(rb"HTTP/1\.1 (\d+)", await exchange(port, sound)) == [b"200", b"404", b"404"]


async def test_pipelined_requests_are_answered_in_order_however_long_each_takes() -> None:
    edge, first = FakeEdge(), asyncio.Event()
    plain = edge.script

    async def slow_first(stream: Stream, message: Translate) -> None:
        if message.request_id == "r0":
            await first.wait()
        await plain(stream, message)

    edge.script = slow_first
    count = 50
    requests = [
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nX-Request-ID: r%d\r\n%b\r\n%b\r\n%b"
        % (number, b"Connection: close" if number == count - 1 else b"X: y", SIZE + b"\r\n", BODY)
        for number in range(count)
    ]
    async with listening(edge) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(requests))
        await edge.wait_for(edge.asked)
        first.set()
        answers = await asyncio.wait_for(reader.read(), WITHIN_S)
        writer.close()
    assert re.findall(rb"X-Request-ID: (r\d+)", answers) == [b"r%d" % number for number in range(count)]


async def test_nothing_is_answered_after_the_end_that_a_client_asked_for() -> None:
    async with listening(FakeEdge()) as port:
        answer = await exchange(port, post(SIZE, b"Connection: close") + HIDDEN * 5)
        assert len(re.findall(rb"HTTP/1\.[01] \d", answer)) == 1 and b"not_found" not in answer


async def test_a_pipeline_without_end_is_not_taken_in() -> None:
    """The first request hangs: what is sent behind it must wait with its sender, not here."""
    edge, release, sent = FakeEdge(), asyncio.Event(), 64 << 20
    plain = edge.script

    async def held(stream: Stream, message: Translate) -> None:
        if len(edge.requests) == 1:
            await release.wait()
        await plain(stream, message)

    edge.script = held
    async with listening(edge) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\n" + SIZE + b"\r\n\r\n" + BODY)
        await edge.wait_for(edge.asked)
        writer.write(HIDDEN * (sent // len(HIDDEN)))
        left = sent
        while (now_left := writer.transport.get_write_buffer_size()) < left:
            left = now_left
            await asyncio.sleep(0.05)  # the kernel's buffers fill up; then nothing moves any more
        assert left > sent / 2
        assert b" 200 " in await exchange(port, post(SIZE, b"Connection: close").removesuffix(HIDDEN))
        writer.transport.abort()
        release.set()


async def test_clients_that_do_not_read_their_events_are_cut_off_and_their_work_with_them() -> None:
    edge, count = FakeEdge(), 20

    async def endless(stream: Stream, message: Translate) -> None:
        for number in range(1_000_000):
            await stream.send(Update(0, 0, number, "partial", "x" * 4096))

    edge.script = endless
    asked = BODY[:-1] + b',"stream":true}'
    request = b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(asked), asked)
    async with listening(edge, answer=AnswerLimits(write_timeout_s=0.2)) as port:
        writers = []
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(request)
            writers.append(writer)
        await edge.wait_for(lambda: edge.cancelled == count, WITHIN_S)
        for writer in writers:
            writer.close()


async def test_a_flood_of_bad_keys_leaves_nothing_behind_and_good_ones_are_served() -> None:
    edge = FakeEdge()
    tenants = {"acme": Tenant(keys=(key_hash("good"),))}
    keyed = b"GET /v1/languages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n%b\r\n"
    close = b"Connection: close\r\n"
    async with listening(edge, tenants) as port:
        flood = b"".join(keyed % (b"bad-%d" % number, b"") for number in range(499))
        tasks = Tasks()
        floods = [
            tasks.spawn(exchange(port, flood + keyed % (b"x" * 4000, close)), name=f"flood {number}")
            for number in range(4)
        ]
        good = [await exchange(port, keyed % (b"good", close)) for _ in range(20)]
        answers = [await flooded for flooded in floods]
        await tasks.close()
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in good)
    assert [answer.count(b"HTTP/1.1 401") for answer in answers] == [500] * 4
