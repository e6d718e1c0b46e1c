"""What a link runs over: packets in, packets out, and an end with a reason. WebSocket and in-memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from aiohttp import web

from nearsay.runtime.config import ServiceConfig
from nearsay.runtime.doors import mark
from nearsay.runtime.tls import LinkTls
from nearsay.wire.limits import PACKET_BYTES_MAX

_CLOSE_CODE = 4000  # private use (RFC 6455, 7.4.2); the reason says what happened
_CLOSE_TIMEOUT_S = 2.0
_MEMORY_PACKETS_MAX = 16


class Transport(Protocol):
    """One connection. Both `send` and `receive` raise ConnectionError once it is over."""

    async def send(self, data: bytes) -> None:
        """Write one packet; waits while the connection takes no more."""

    async def receive(self) -> bytes:
        """The next packet; the ConnectionError at the end carries the peer's reason."""

    async def close(self, reason: str = "") -> None:
        """End the connection; both sides' `receive` end. Idempotent."""


Connect = Callable[[str], Awaitable[Transport]]


class WebSocketTransport:
    """A packet is one binary message."""

    def __init__(self, socket: web.WebSocketResponse | aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        await self._socket.send_bytes(data)  # aiohttp's error for a closed connection is a ConnectionError

    async def receive(self) -> bytes:
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        if message.type is aiohttp.WSMsgType.TEXT:
            await self.close("malformed_packet")
        reason = message.extra if message.type is aiohttp.WSMsgType.CLOSE else ""
        raise ConnectionError(reason or "the connection was closed")

    async def close(self, reason: str = "") -> None:
        code = _CLOSE_CODE if reason else aiohttp.WSCloseCode.OK
        await self._socket.close(code=code, message=reason.encode()[:120])


async def accept_websocket(request: web.Request) -> tuple[WebSocketTransport, web.WebSocketResponse]:
    """Answer an HTTP request with a WebSocket. Raises the HTTP error of a request that is none."""
    socket = web.WebSocketResponse(timeout=_CLOSE_TIMEOUT_S, max_msg_size=PACKET_BYTES_MAX, compress=False)
    try:
        await socket.prepare(request)
    except ConnectionError:  # not a fault of ours, to be logged as one: nobody is there to read this
        raise web.HTTPBadRequest(text="the client left") from None
    return WebSocketTransport(socket), socket


@dataclass(frozen=True)
class Dial:
    """How links are opened. `tls`: what those to wss:// addresses trust and show; None = the system's authorities."""

    tls: LinkTls | None = None
    dscp: int = 0

    @classmethod
    def of(cls, config: ServiceConfig) -> Dial:
        """As a service's config says. Raises ConfigError."""
        return cls(LinkTls.of(config), config.dscp)


def websocket_connect(session: aiohttp.ClientSession, dial: Dial = Dial()) -> Connect:
    """Connect through an HTTP session, which the caller closes."""

    async def connect(url: str) -> Transport:
        try:
            socket = await session.ws_connect(
                url,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT_S),
                max_msg_size=PACKET_BYTES_MAX,
                compress=0,
                ssl=dial.tls.context() if dial.tls is not None else True,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ConnectionError(f"the server answered {error.status}") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ConnectionError(type(error).__name__) from error
        mark(socket.get_extra_info("socket"), dial.dscp)
        return WebSocketTransport(socket)

    return connect


class _Pipe:
    """One direction of a memory pair: a bounded queue of packets with an end."""

    def __init__(self) -> None:
        self.packets: deque[bytes] = deque()
        self.reason: str | None = None
        self._changed: list[asyncio.Future[None]] = []

    async def changed(self) -> None:
        """Wait for the next packet, room or end."""
        waiter = asyncio.get_running_loop().create_future()
        self._changed.append(waiter)
        await waiter

    def wake(self) -> None:
        waiters, self._changed = self._changed, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class MemoryTransport:
    """One end of `memory_pair`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._in = incoming
        self._out = outgoing

    async def send(self, data: bytes) -> None:
        while len(self._out.packets) >= _MEMORY_PACKETS_MAX and self._out.reason is None:
            await self._out.changed()
        if self._out.reason is not None:
            raise ConnectionError("the connection was closed")
        self._out.packets.append(data)
        self._out.wake()

    async def receive(self) -> bytes:
        while not self._in.packets:
            if self._in.reason is not None:
                raise ConnectionError(self._in.reason or "the connection was closed")
            await self._in.changed()
        data = self._in.packets.popleft()
        self._in.wake()
        return data

    async def close(self, reason: str = "") -> None:
        for pipe in (self._in, self._out):
            if pipe.reason is None:
                pipe.reason = reason
                pipe.wake()


def memory_pair() -> tuple[MemoryTransport, MemoryTransport]:
    """Two connected transports in one process; each direction holds 16 packets at most. What was sent before the end is
    still received, as on a socket."""
    left, right = _Pipe(), _Pipe()
    return MemoryTransport(left, right), MemoryTransport(right, left)
