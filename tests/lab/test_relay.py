from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from nearsay.lab import relay as module
from nearsay.lab.relay import Relay
from nearsay.runtime.tasks import Tasks

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DELAY_S = 0.03


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def relayed(serve: Serve = echo, delay_s: float = DELAY_S) -> AsyncIterator[int]:
    """The port of a relay before a server."""
    tasks = Tasks()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    relay = Relay(server.sockets[0].getsockname()[:2], delay_s, tasks)
    try:
        yield await relay.start()
    finally:
        await relay.close()
        await tasks.close()
        server.close()


async def test_a_round_trip_takes_both_ways_at_least() -> None:
    async with relayed() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            begin = time.monotonic()
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            assert time.monotonic() - begin >= 2 * DELAY_S
        writer.close()


async def test_bytes_under_way_do_not_wait_for_each_other_and_keep_their_order() -> None:
    """Each of 50 small writes takes the delay, not each the delay of all before it."""
    async with relayed() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(50):
            writer.write(bytes([number]))
            await asyncio.sleep(0)
        assert await reader.readexactly(50) == bytes(range(50))
        writer.close()


async def test_an_end_is_carried_after_the_last_byte() -> None:
    async with relayed() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"last")
        writer.write_eof()
        assert await reader.read() == b"last"
        writer.close()


@pytest.mark.parametrize("listening", [True, False])
async def test_a_dead_target_ends_the_connection(listening: bool) -> None:
    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with relayed(dies, delay_s=0.0) as port:
        if not listening:
            tasks = Tasks()
            relay = Relay(("127.0.0.1", 1), 0.0, tasks)
            port = await relay.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionError):
            if await reader.read() == b"":
                raise ConnectionError
        writer.close()
        if not listening:
            await relay.close()
            await tasks.close()


async def test_what_is_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that reads nothing: the sender has to stop, and nothing is lost once it reads."""
    monkeypatch.setattr(module, "UNDER_WAY_BYTES_MAX", 100_000)
    read, total = asyncio.Event(), 20_000_000

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read.wait()
        seen = 0
        while data := await reader.read(1 << 20):
            seen += len(data)
        writer.write(str(seen).encode())
        writer.close()

    async with relayed(late, delay_s=0.0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(total))
        writer.write_eof()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await writer.drain()
        read.set()
        assert await reader.read() == str(total).encode()
        writer.close()
