"""The SDK over the proxy's link: all requests of a client share one WebSocket, each on a stream of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

import aiohttp
import msgspec

from nearsay.client.request import Request
from nearsay.client.results import Done, Event, checked, event_of, result_of
from nearsay.client.transport import TransportLost, going_away
from nearsay.runtime.link import LinkLimits, Peer, Stream
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Transport, websocket_connect
from nearsay.wire.errors import InternalError, InvalidRequest, LinkLost, Unavailable
from nearsay.wire.messages import Hello, Tier, Translate, Translated, Update

RETIRE_S = 120.0  # the longest default deadline


class LinkTransport:
    """One `Peer`, which reconnects by itself. `ready` says whether the link is up now."""

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        grant: Callable[[], str] | None = None,
        limits: LinkLimits | None = None,
    ) -> None:
        """`url`: of a proxy, or of a link (ws, wss). `grant`: shown instead of a key, the newest with each request."""
        self._started = False
        self._grant = grant
        self._decided = asyncio.Event()  # the link is up now, or our key was refused
        self._settled = asyncio.Event()  # a try to connect came to an end, good or bad
        self._exchanges = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._session: aiohttp.ClientSession | None = None
        self._tasks = Tasks()
        self._peer = Peer(
            link_url(url),
            hello=lambda: Hello(role="client", secret=grant() if grant is not None else key),
            tasks=self._tasks,
            limits=limits or LinkLimits(),
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
        asked = request.message(asyncio.get_running_loop().time(), attempt)
        if self._grant is not None:
            asked = msgspec.structs.replace(asked, grant=self._grant())
        stream = await self._open(asked)
        self._exchanges += 1
        self._idle.clear()
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
            self._exchanges -= 1
            if not self._exchanges:
                self._idle.set()

    def serves(self, source: str, target: str, tier: Tier) -> bool:
        """Whether the edge at the other end says that it can answer such a request now."""
        hello, load = self._peer.hello, self._peer.load
        if hello is None or (load.state if load is not None else hello.state) != "ready":
            return False
        here = any(m.tier == "edge" and (m.source, m.target) == (source, target) for m in hello.models)
        far = load is not None and f"{source}-{target}" in load.origin_ready
        return {"edge": here, "auto": here or far}.get(tier, far)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call when the link comes up, goes down or is told something."""
        self._peer.on_change(callback)

    async def retire(self) -> None:
        """Close once the exchanges under way have ended, or after RETIRE_S."""
        try:
            async with asyncio.timeout(RETIRE_S):
                await self._idle.wait()
        except TimeoutError:
            pass  # they are lost: nobody may wait for ever
        finally:
            await self.close()

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
    """`http://host:port` to `ws://host:port/link`, https to wss; an address of a link stays as it is."""
    return url if url.startswith("ws") else "ws" + url.removeprefix("http").rstrip("/") + "/link"
