"""An origin as a process would run it, with a peer, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from nearsay.runtime.link import LinkLimits, Peer
from nearsay.runtime.model_admin import ModelsReport
from nearsay.runtime.service import Stop, run_service
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Finished, Hello, Submit
from origin.app import Origin
from tests.runtime.kit import TIMEOUT_S, until


class Running:
    """A service between its start and its stop, and a peer of it."""

    def __init__(self, origin: Origin, peer: Peer, stop: Stop, done: asyncio.Task[None], admin_port: int) -> None:
        self.origin = origin
        self.admin = f"http://127.0.0.1:{admin_port}"
        self.peer = peer
        self.stop = stop
        self.done = done

    async def get(self, path: str) -> Any:
        """JSON of the admin port."""
        async with aiohttp.ClientSession() as http, http.get(self.admin + path) as answer:
            return await answer.json()

    async def reload(self) -> tuple[int, ModelsReport]:
        """POST /models/reload."""
        async with aiohttp.ClientSession() as http, http.post(f"{self.admin}/models/reload") as answer:
            return answer.status, msgspec.json.decode(await answer.read(), type=ModelsReport)


@asynccontextmanager
async def running(origin: Origin, hello: Hello = Hello("edge")) -> AsyncIterator[Running]:  # noqa: B008 (frozen)
    """Start an origin, connect to it, and stop it at the end."""
    tasks, stop = Tasks(), Stop()
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    done = tasks.spawn(run_service(origin, stop=stop, announce=announced.set_result), name="origin")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.wait((done, announced), return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                done.result()
            ready = json.loads(announced.result())
        assert (ready["service"], ready["state"]) == ("origin", "ready")
        peer = Peer(
            f"ws://127.0.0.1:{ready['port']}/link",
            hello=lambda: hello,
            tasks=tasks,
            limits=LinkLimits(backoff_min_s=0.01),
            clock=time.monotonic,
        )
        await peer.start()
        await until(peer.on_change, lambda: peer.ready)
        yield Running(origin, peer, stop, done, ready["admin_port"])
        await peer.close()
        stop.ask()
        async with asyncio.timeout(TIMEOUT_S):
            await done
    finally:
        await tasks.close()


async def ask(peer: Peer, message: Submit) -> Finished:
    stream = await peer.open(message)
    async with asyncio.timeout(TIMEOUT_S):
        answer = await stream.receive()
    assert isinstance(answer, Finished)
    return answer
