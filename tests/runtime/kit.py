"""A server and peers over either transport, with a leak check at the end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from nearsay.runtime.link import Connect, Handler, LinkLimits, LinkServer, Peer, Transport, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Hello, Translate, Translated, TranslatedText
from nearsay.wire.session import Authorise

FAST = LinkLimits(backoff_min_s=0.001, backoff_max_s=0.01)
TIMEOUT_S = 20.0


def ask(text: str = "Good morning", budget_ms: float = 10_000.0) -> Translate:
    return Translate("r1", (text,), "en", "de", budget_ms=budget_ms)


def answer(text: str = "Guten Morgen") -> Translated:
    return Translated((TranslatedText(text, "en", "edge", "m@1"),), {}, 1.0)


class Rig:
    """One server; `peer()` makes connected peers to it."""

    def __init__(self, tasks: Tasks, server: LinkServer, url: str, connect: Connect | None) -> None:
        self.tasks = tasks
        self.server = server
        self.url = url
        self.connect = connect
        self.peers: list[Peer] = []

    async def peer(self, *, secret: str = "", limits: LinkLimits = FAST, wait: bool = True) -> Peer:
        peer = Peer(
            self.url,
            hello=lambda: Hello("proxy", secret=secret),
            tasks=self.tasks,
            limits=limits,
            clock=time.monotonic,
            connect=self.connect,
            rng=random.Random(1),
        )
        self.peers.append(peer)
        await peer.start()
        if wait:
            await until(peer.on_change, lambda: peer.ready)
        return peer


async def until(subscribe: Callable[[Callable[[], None]], None], condition: Callable[[], bool]) -> None:
    """Wait for a condition that changes only with the given callback."""
    changed = asyncio.Event()
    subscribe(changed.set)
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            changed.clear()
            await changed.wait()


async def turns(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition that needs no outside event holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - the point is to let every other task run
            await asyncio.sleep(0)


@asynccontextmanager
async def rig(
    transport: str, handler: Handler, *, limits: LinkLimits = FAST, secret: str | Authorise = ""
) -> AsyncIterator[Rig]:
    """A server over "memory" or "websocket"; at the end no task, link or stream may be left."""
    tasks = Tasks()
    server = LinkServer(
        hello=lambda: Hello("edge"), handler=handler, tasks=tasks, limits=limits, clock=time.monotonic, secret=secret
    )
    runner: web.AppRunner | None = None
    if transport == "memory":

        async def connect(_: str) -> Transport:
            ours, theirs = memory_pair()
            tasks.spawn(server.serve(theirs), name="serve")
            return ours

        made = Rig(tasks, server, "memory", connect)
    else:
        runner, url = await websocket_server(server)
        made = Rig(tasks, server, url, None)
    try:
        yield made
        for peer in made.peers:
            await peer.close()
        await server.drain(TIMEOUT_S)
        await turns(lambda: len(tasks) == 0 and server.links == 0)
        assert server.links == server.in_flight == 0
        assert all(peer.in_flight == 0 for peer in made.peers)
    finally:
        await tasks.close()
        if runner is not None:
            await runner.cleanup()


async def websocket_server(server: LinkServer, port: int = 0) -> tuple[web.AppRunner, str]:
    """Serve links on loopback."""
    app = web.Application()
    app.router.add_get("/link", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, f"ws://127.0.0.1:{runner.addresses[0][1]}/link"
