from __future__ import annotations

import asyncio
import time

import pytest

from nearsay.runtime.link import LinkServer, Peer, Stream, Transport, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import LinkLost, Unavailable
from nearsay.wire.messages import Hello
from tests.runtime.kit import FAST, TIMEOUT_S, answer, ask, rig, turns, until, websocket_server


async def echo(stream: Stream) -> None:
    await stream.finish(answer())


async def test_opening_before_the_link_is_up_never_hangs() -> None:
    async with rig("memory", echo) as link:
        peer = await link.peer(wait=False)
        with pytest.raises(Unavailable, match="not connected yet"):
            await peer.open(ask())
        await until(peer.on_change, lambda: peer.ready)
        assert await (await peer.open(ask())).receive() == answer()


async def test_it_comes_back_after_a_restart_of_the_other_process() -> None:
    tasks = Tasks()

    def server(instance: str) -> LinkServer:
        return LinkServer(
            hello=lambda: Hello("edge", instance=instance),
            handler=echo,
            tasks=tasks,
            limits=FAST,
            clock=time.monotonic,
        )

    runner, url = await websocket_server(server("first"))
    peer = Peer(url, hello=lambda: Hello("proxy"), tasks=tasks, limits=FAST, clock=time.monotonic)
    await peer.start()
    await until(peer.on_change, lambda: peer.ready)
    port = runner.addresses[0][1]
    stopping = tasks.spawn(runner.cleanup(), name="stop the first")
    await until(peer.on_change, lambda: not peer.ready)
    await stopping
    assert peer.hello is not None and peer.hello.instance == "first", "the last hello is kept"
    with pytest.raises(Unavailable):
        await peer.open(ask())
    await until(peer.on_change, lambda: "Cannot connect" in peer.reason or "ClientConnectorError" in peer.reason)
    runner, _ = await websocket_server(server("second"), port)
    await until(peer.on_change, lambda: peer.ready)
    assert peer.hello.instance == "second" and peer.reason == ""
    assert await (await peer.open(ask())).receive() == answer()
    await peer.close()
    await runner.cleanup()
    await tasks.close()


async def test_go_away_moves_to_a_new_link_while_old_streams_finish() -> None:
    """Two servers behind one name: the first goes away, its open stream ends well, new ones go to the second."""
    tasks = Tasks()
    release = asyncio.Event()

    async def slow(stream: Stream) -> None:
        await release.wait()
        await stream.finish(answer("slow"))

    servers = [
        LinkServer(hello=lambda: Hello("edge"), handler=handler, tasks=tasks, limits=FAST, clock=time.monotonic)
        for handler in (slow, echo)
    ]
    waiting = iter(servers)

    async def connect(_: str) -> Transport:
        ours, theirs = memory_pair()
        tasks.spawn(next(waiting).serve(theirs), name="serve")
        return ours

    peer = Peer("name", hello=lambda: Hello("proxy"), tasks=tasks, limits=FAST, clock=time.monotonic, connect=connect)
    await peer.start()
    await until(peer.on_change, lambda: peer.ready)
    old = await peer.open(ask())
    await turns(lambda: servers[0].in_flight == 1)
    draining = tasks.spawn(servers[0].drain(TIMEOUT_S), name="drain")
    await until(peer.on_change, lambda: not peer.ready)
    await until(peer.on_change, lambda: peer.ready)
    assert peer.in_flight == 1
    assert await (await peer.open(ask())).receive() == answer()
    release.set()
    assert await old.receive() == answer("slow")
    await draining
    assert servers[0].links == 0 and peer.in_flight == 0
    await peer.close()
    await servers[1].drain(TIMEOUT_S)
    await turns(lambda: len(tasks) == 0)


async def test_tries_are_spaced_and_only_news_is_told() -> None:
    tasks = Tasks()
    tries = 0
    enough = asyncio.Event()

    async def refuse(_: str) -> Transport:
        nonlocal tries
        tries += 1
        if tries == 5:
            enough.set()
        raise ConnectionRefusedError("refused")

    told: list[str] = []
    peer = Peer("name", hello=lambda: Hello("proxy"), tasks=tasks, limits=FAST, clock=time.monotonic, connect=refuse)
    peer.on_change(lambda: told.append(peer.reason))
    await peer.start()
    await asyncio.wait_for(enough.wait(), TIMEOUT_S)
    assert told == ["refused"]
    await peer.close()
    assert len(tasks) == 0


async def test_a_connection_that_takes_too_long_is_a_failed_try() -> None:
    tasks = Tasks()

    async def hang(_: str) -> Transport:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    limits = type(FAST)(connect_timeout_s=0.01, backoff_min_s=0.001, backoff_max_s=0.01)
    peer = Peer("name", hello=lambda: Hello("proxy"), tasks=tasks, limits=limits, clock=time.monotonic, connect=hang)
    await peer.start()
    await until(peer.on_change, lambda: peer.reason == "TimeoutError")
    await peer.close()
    await tasks.close()


async def test_close_fails_what_is_open() -> None:
    async def nothing(stream: Stream) -> None:
        await asyncio.get_running_loop().create_future()

    async with rig("websocket", nothing) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await peer.close()
        with pytest.raises(LinkLost):
            await stream.receive()
        with pytest.raises(Unavailable):
            await peer.open(ask())
