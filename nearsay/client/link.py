"""The SDK over the proxy's link: all requests of a client share one WebSocket, each on a stream of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import aiohttp

from nearsay.client.request import Request
from nearsay.client.results import Done, Event, checked, event_of, result_of
from nearsay.client.transport import TransportLost, going_away
from nearsay.runtime.link import LinkLimits, Peer, Stream
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Transport, websocket_connect
from nearsay.wire.errors import InternalError, InvalidRequest, LinkLost, Unavailable
from nearsay.wire.messages import Hello, Translate, Translated, Update


class LinkTransport:
    """One `Peer`, which reconnects by itself. `ready` says whether the link is up now."""

    def __init__(self, url: str, *, key: str = "") -> None:
        self._started = False
        self._decided = asyncio.Event()  # the link is up now, or our key was refused
        self._settled = asyncio.Event()  # a try to connect came to an end, good or bad
        self._session: aiohttp.ClientSession | None = None
        self._tasks = Tasks()
        self._peer = Peer(
            link_url(url),
            hello=lambda: Hello(role="client", secret=key),
            tasks=self._tasks,
            limits=LinkLimits(),
            clock=time.monotonic,
            connect=self._connect,
        )
        self._peer.on_change(self._on_change)

    @property
    def _refused(self) -> bool:
        return self._peer.reason == "unauthorised"

    @property
    def ready(self) -> bool:
        """Whether a request could be sent over the link now."""
        return self._peer.ready

    async def wait_settled(self, timeout_s: float) -> bool:
        """Start if need be, wait until the first try to connect ended, good or bad; returns `ready`."""
        if not await self._wait(self._settled, timeout_s):
            self._settled.set()  # waited for once; later requests take what is there
        return self.ready

    async def wait_ready(self, timeout_s: float) -> bool:
        """Start if need be, wait until the link is up or the key refused; returns `ready`."""
        await self._wait(self._decided, timeout_s)
        return self.ready

    async def exchange(self, request: Request, attempt: int) -> AsyncGenerator[Event, None]:
        """See `nearsay.client.transport.Transport.exchange`."""
        stream = await self._open(request.message(asyncio.get_running_loop().time(), attempt))
        try:
            async for message in stream:
                if isinstance(message, Update):
                    yield event_of(message)
                elif isinstance(message, Translated):
                    yield Done(checked(result_of(message, request.request_id), len(request.texts)))
                else:
                    raise InternalError(f"unexpected {type(message).__name__} in answer to Translate")
        except Unavailable as error:
            if isinstance(error, LinkLost) or going_away(error):
                raise TransportLost(error) from error
            raise
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Close the link and end its tasks."""
        await self._peer.close()
        await self._tasks.close()
        if self._session is not None:
            await self._session.close()

    async def _open(self, message: Translate) -> Stream:
        try:
            return await self._peer.open(message)
        except Unavailable as error:
            if self._refused:
                raise InvalidRequest("the key was refused", code="unauthorised") from None
            raise TransportLost(error) from error

    async def _wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        if not self._started:
            self._started = True
            await self._peer.start()
        try:
            async with asyncio.timeout(timeout_s):
                return await event.wait()
        except TimeoutError:
            return False

    def _on_change(self) -> None:
        self._settled.set()
        if self._peer.ready or self._refused:
            self._decided.set()
        else:
            self._decided.clear()

    async def _connect(self, url: str) -> Transport:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            return await websocket_connect(self._session)(url)
        except ConnectionError:
            self._settled.set()
            raise


def link_url(url: str) -> str:
    """`http://host:port` to `ws://host:port/link`, https to wss."""
    return "ws" + url.removeprefix("http").rstrip("/") + "/link"
