from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from nearsay.runtime.link import LinkLimits, LinkServer, Stream, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Hello
from nearsay.wire.protocol import Side
from nearsay.wire.session import Session
from tests.runtime.kit import TIMEOUT_S, answer, rig


async def echo(stream: Stream) -> None:
    await stream.finish(answer())


async def test_a_peer_that_falls_silent_is_given_up() -> None:
    """It greets, then never reads or writes again: a real clock, so the limits are small."""
    tasks = Tasks()
    limits = LinkLimits(ping_interval_s=0.01, ping_timeout_s=0.05)
    server = LinkServer(hello=lambda: Hello("edge"), handler=echo, tasks=tasks, limits=limits, clock=time.monotonic)
    ours, theirs = memory_pair()
    serving = tasks.spawn(server.serve(theirs), name="serve")
    await ours.send(Session(Side.CONNECT, Hello("proxy"), limits, now=0.0).data_to_send(0.0))
    await asyncio.wait_for(serving, TIMEOUT_S)
    with pytest.raises(ConnectionError, match="ping_timeout"):
        while True:
            await ours.receive()
    assert len(tasks) == 0 and server.links == 0


async def test_who_never_greets_is_given_up() -> None:
    tasks = Tasks()
    limits = LinkLimits(hello_timeout_s=0.01)
    server = LinkServer(hello=lambda: Hello("edge"), handler=echo, tasks=tasks, limits=limits, clock=time.monotonic)
    ours, theirs = memory_pair()
    tasks.spawn(server.serve(theirs), name="serve")
    with pytest.raises(ConnectionError, match="hello_timeout"):
        await asyncio.wait_for(ours.receive(), TIMEOUT_S)
    await tasks.close()


async def test_a_draining_server_answers_503() -> None:
    async with rig("websocket", echo) as link, aiohttp.ClientSession() as http:
        await link.server.drain(TIMEOUT_S)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(link.url)
        assert caught.value.status == 503


async def test_a_draining_server_closes_other_transports_at_once() -> None:
    async with rig("memory", echo) as link:
        await link.server.drain(TIMEOUT_S)
        ours, theirs = memory_pair()
        await link.server.serve(theirs)
        with pytest.raises(ConnectionError, match="unavailable"):
            await ours.receive()
