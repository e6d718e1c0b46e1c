from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from nearsay.runtime.link import LinkServer, Stream, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import websocket_connect
from nearsay.wire.limits import PACKET_BYTES_MAX
from nearsay.wire.messages import Hello
from tests.runtime.kit import FAST, TIMEOUT_S, answer, ask, rig, websocket_server


async def echo(stream: Stream) -> None:
    await stream.finish(answer())


async def test_a_memory_pair_carries_packets_both_ways_in_order() -> None:
    left, right = memory_pair()
    for i in range(5):
        await left.send(bytes([i]))
    assert [await right.receive() for _ in range(5)] == [bytes([i]) for i in range(5)]
    await right.send(b"back")
    assert await left.receive() == b"back"


async def test_a_memory_pair_holds_only_so_much() -> None:
    left, right = memory_pair()
    tasks = Tasks()
    sent: list[int] = []

    async def flood() -> None:
        for i in range(40):
            await left.send(b"x")
            sent.append(i)

    flooding = tasks.spawn(flood(), name="flood")
    received = 0
    async with asyncio.timeout(TIMEOUT_S):
        while received < 40:
            await right.receive()
            received += 1
            assert len(sent) <= received + 17
        await flooding


async def test_the_end_of_a_memory_pair_comes_after_what_was_sent_and_tells_why() -> None:
    left, right = memory_pair()
    await left.send(b"last words")
    await left.close("tired")
    await left.close("no effect")
    assert await right.receive() == b"last words"
    for _ in range(2):
        with pytest.raises(ConnectionError, match="tired"):
            await right.receive()
    for end in (left, right):
        with pytest.raises(ConnectionError):
            await end.send(b"x")


async def test_closing_wakes_who_waits() -> None:
    left, right = memory_pair()
    tasks = Tasks()
    for _ in range(16):
        await left.send(b"x")
    waiting = [tasks.spawn(left.send(b"x"), name="send"), tasks.spawn(left.receive(), name="receive")]
    await asyncio.sleep(0)
    await right.close()
    done, _ = await asyncio.wait(waiting, timeout=TIMEOUT_S)
    assert all(isinstance(task.exception(), ConnectionError) for task in done) and len(done) == 2


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("text", "malformed_packet"),
        (b"\xc1", "malformed_packet"),
        (b"\x91\x92\x07\x01", "hello_first"),
    ],
)
async def test_garbage_closes_only_its_own_link_with_a_code(data: str | bytes, code: str) -> None:
    async with rig("websocket", echo) as link, aiohttp.ClientSession() as http:
        peer = await link.peer()
        socket = await http.ws_connect(link.url)
        await (socket.send_str(data) if isinstance(data, str) else socket.send_bytes(data))
        closing = await asyncio.wait_for(socket.receive(), TIMEOUT_S)
        assert (closing.type, closing.data, closing.extra) == (aiohttp.WSMsgType.CLOSE, 4000, code)
        assert await (await peer.open(ask())).receive() == answer(), "the other link never noticed"


async def test_a_packet_over_the_limit_never_reaches_memory() -> None:
    async with rig("websocket", echo) as link, aiohttp.ClientSession() as http:
        socket = await http.ws_connect(link.url)
        await socket.send_bytes(bytes(PACKET_BYTES_MAX + 1))
        closing = await asyncio.wait_for(socket.receive(), TIMEOUT_S)
        assert closing.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_connecting_to_what_is_no_link() -> None:
    async with aiohttp.ClientSession() as http:
        connect = websocket_connect(http)
        tasks = Tasks()
        server = LinkServer(hello=lambda: Hello("edge"), handler=echo, tasks=tasks, limits=FAST, clock=time.monotonic)
        runner, url = await websocket_server(server)
        with pytest.raises(ConnectionError, match="404"):
            await connect(url + "/nowhere")
        await runner.cleanup()
        for gone in (url, "ws://", "http://[bad"):
            with pytest.raises(OSError):
                await connect(gone)
        await tasks.close()
