"""A network in one process: addresses, one-way delays, and links that break. Runs in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Transport

Serve = Callable[[Transport], Awaitable[None]]
PACKETS_MAX = 64


class _Cable:
    """One direction: packets with the instant at which they arrive. Breaking it loses what is under way."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.packets: deque[tuple[float, bytes]] = deque()
        self.reason: str | None = None
        self.broken = False
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def put(self, data: bytes) -> None:
        while len(self.packets) >= PACKETS_MAX and self.reason is None:
            await self._changed.wait()
        if self.reason is not None:
            raise ConnectionError(self.reason or "the connection was closed")
        self.packets.append((asyncio.get_running_loop().time() + self.delay_s, data))
        self.wake()

    async def get(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            if self.broken or (not self.packets and self.reason is not None):
                raise ConnectionError(self.reason or "the connection was closed")
            changed = self._changed
            if not self.packets:
                await changed.wait()
            elif (wait_s := self.packets[0][0] - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            else:
                _, data = self.packets.popleft()
                self.wake()
                return data

    def end(self, reason: str, *, broken: bool = False) -> None:
        if self.reason is None:
            self.reason, self.broken = reason, broken
            self.wake()


class _End:
    """One end of a connection: a `Transport`."""

    def __init__(self, incoming: _Cable, outgoing: _Cable) -> None:
        self._in, self._out = incoming, outgoing

    async def send(self, data: bytes) -> None:
        await self._out.put(data)

    async def receive(self) -> bytes:
        return await self._in.get()

    async def close(self, reason: str = "") -> None:
        self._out.end(reason)
        self._in.end(reason, broken=True)


class Net:
    """`serve(url, ...)` listens, `connect` reaches it, `down` and `up` take an address away and give it back."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._listeners: dict[str, Serve] = {}
        self._cables: dict[str, list[_Cable]] = {}
        self._down: set[str] = set()
        self.delay_s: dict[str, float] = {}

    def serve(self, url: str, serve: Serve) -> None:
        self._listeners[url] = serve

    async def connect(self, url: str) -> Transport:
        delay_s = self.delay_s.get(url, 0.001)
        await asyncio.sleep(delay_s)
        if url in self._down or url not in self._listeners:
            raise ConnectionError("refused")
        there, back = _Cable(delay_s), _Cable(delay_s)
        self._cables.setdefault(url, []).extend((there, back))
        self._tasks.spawn(self._serve(url, _End(there, back)), name=f"serve {url}")
        return _End(back, there)

    async def _serve(self, url: str, end: _End) -> None:
        await self._listeners[url](end)

    def down(self, url: str) -> None:
        """Break every connection of an address at once, losing what is under way, and refuse new ones."""
        self._down.add(url)
        for cable in self._cables.pop(url, ()):
            cable.end("broken", broken=True)

    def up(self, url: str) -> None:
        self._down.discard(url)
