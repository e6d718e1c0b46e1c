"""The case's own arithmetic, its client and its echo; the proxies themselves are run by hand."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.echo_edge import answer
from bench.lean_http import Connection, EchoServer, Framer, ResponseError, request_bytes
from bench.proxy import Figures, _closed_loop, measures, open_loop
from bench.rivals import NATIVE, OPENAI, TEXT
from nearsay.runtime.tasks import Tasks


@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_messages_are_framed_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(request_bytes("/x", body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    framer, seen = Framer(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += [body for _, body in framer.feed(stream[start:stop])]
    assert seen == bodies


def test_the_echo_speaks_both_forms() -> None:
    for request, find in (
        (NATIVE, lambda said: said["translations"][0]["text"]),
        (OPENAI, lambda said: said["choices"][0]["message"]["content"]),
    ):
        ((head, body),) = Framer().feed(request)
        assert find(orjson.loads(answer(head, body))) == TEXT


async def _server(reply: bytes | None = None) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: EchoServer(lambda head, body: reply or answer(head, body)), "127.0.0.1")
    return server, server.sockets[0].getsockname()[1]


async def test_loops_count_what_was_answered() -> None:
    server, port = await _server()
    tasks = Tasks()
    try:
        connections = [await Connection.open(port) for _ in range(2)]
        assert await _closed_loop(connections, NATIVE, 0.05) > 0
        latencies, errors = await open_loop(connections, NATIVE, 2_000.0, 0.05, tasks)
        assert len(latencies) > 10
        assert errors == 0
        assert min(latencies) > 0
        for connection in connections:
            connection.close()
    finally:
        server.close()
        await tasks.close()


async def test_a_bad_status_and_a_lost_connection_are_errors() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
        await reader.read(10_000)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    connection = await Connection.open(server.sockets[0].getsockname()[1])
    with pytest.raises(ResponseError, match="503"):
        await connection.post(NATIVE)
    with pytest.raises(ResponseError, match="lost"):
        await connection.post(NATIVE)
    server.close()


def figures(per_core_s: float, p50_ms: float) -> Figures:
    return Figures(1_000.0, per_core_s, 400.0, p50_ms, 3.0, 0.2, 1.0, 0)


def test_added_is_what_a_direct_request_does_not_take() -> None:
    found = measures({"nearsay": figures(5_000.0, 0.7), "litellm": figures(500.0, 10.2)}, {"errors_5000": 0.0})
    values = {measure.name: measure.value for measure in found}
    assert values["added_p50_ms"] == pytest.approx(0.5)
    assert values["added_p99_ms"] == pytest.approx(2.0)
    assert values["per_core_over_litellm"] == pytest.approx(10.0)
    assert values["added_p50_over_litellm"] == pytest.approx(0.05)
