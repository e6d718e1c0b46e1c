"""A listener behind load balancers that speak the PROXY protocol: eats the header before the real protocol sees a byte.

Only trusted hops are asked for one, and must send it: guessing would let anybody name an address (the specification
forbids it). Everybody else is served as they come, so that a forged header is only a malformed request. Connections
that have yet to send theirs are bounded in number, bytes and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web

from nearsay.wire.hops import TrustedHops, parse_address
from nearsay.wire.protocol import ProtocolError
from nearsay.wire.proxy_protocol import Preface, parse_preface

PREFACE_TIMEOUT_S = 5.0
WAITING_MAX = 1024  # connections whose header isn't whole yet; more are closed at once

MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Prefaced:
    """Protocol factory around another one. `waiting` are the connections whose header hasn't come."""

    def __init__(
        self,
        make: MakeProtocol,
        hops: TrustedHops,
        *,
        timeout_s: float = PREFACE_TIMEOUT_S,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self.waiting: set[PrefaceProtocol] = set()
        self.make = make
        self.hops = hops
        self.timeout_s = timeout_s
        self.waiting_max = waiting_max

    def __call__(self) -> PrefaceProtocol:
        return PrefaceProtocol(self)

    def close(self) -> None:
        """Cut what is still waiting."""
        for protocol in list(self.waiting):
            protocol.abort()


class PrefaceProtocol(asyncio.Protocol):
    """One connection until its header is whole; then its transport belongs to the protocol behind."""

    def __init__(self, owner: Prefaced) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        address = parse_address(peer[0]) if peer else None
        if address is None or address not in self._owner.hops:
            return self._pass_on(self._transport, b"")
        if len(self._owner.waiting) >= self._owner.waiting_max:
            return self._transport.abort()
        self._owner.waiting.add(self)
        self._timer = asyncio.get_running_loop().call_later(self._owner.timeout_s, self.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        try:
            preface = parse_preface(self._data)
        except ProtocolError:
            return self.abort()
        if preface is not None:
            self._begin(self._transport, preface)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def abort(self) -> None:
        """Cut the connection."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, transport: asyncio.Transport, preface: Preface) -> None:
        self._forget()
        if preface.source is not None:
            transport = cast(asyncio.Transport, Announced(transport, preface.source))
        self._pass_on(transport, self._data[preface.size_bytes :])

    def _pass_on(self, transport: asyncio.Transport, data: bytes) -> None:
        protocol = cast(asyncio.Protocol, self._owner.make())
        assert self._transport is not None
        self._transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if data:
            protocol.data_received(data)

    def _forget(self) -> None:
        self._owner.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()


class Announced:
    """A transport whose peer is the client that the header named; in everything else it is the transport it wraps."""

    def __init__(self, transport: asyncio.Transport, source: tuple[str, int]) -> None:
        self._transport = transport
        self._source = source

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport's, but for `peername`."""
        return self._source if name == "peername" else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PrefacedRunner(web.AppRunner):
    """An AppRunner whose sites listen through `Prefaced`."""

    __slots__ = ("_prefaced",)

    def __init__(self, app: web.Application, hops: TrustedHops, **options: Any) -> None:
        super().__init__(app, **options)
        self._prefaced = Prefaced(self._connection, hops)

    @property
    def server(self) -> Any:
        """What sites give to `create_server`: a protocol factory."""
        return self._prefaced if self._server is not None else None

    async def cleanup(self) -> None:
        """As AppRunner's; connections without a header are cut first."""
        self._prefaced.close()
        await super().cleanup()

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._server is not None
        return self._server()
