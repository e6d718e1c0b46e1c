"""The ports of a process: HTTP servers on sockets that it bound, or that a parent keeps while processes come and go."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.preface import PrefacedRunner
from nearsay.runtime.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, DoorTls
from nearsay.wire.hops import TrustedHops

BACKLOG = 1024  # connections that wait to be taken: also while processes change
_IDLE_POLL_S = 0.02
_CLEANUP_TIMEOUT_S = 1.0  # for connections that are still there after the drain
_http_log = logging.getLogger("nearsay.http")


def bind(host: str, port: int, *, dscp: int = 0) -> list[socket.socket]:
    """Sockets at every address of `host`, the same port each, listening. Raises ConfigError when it can't be had.

    They listen from here on: whoever connects before a process takes connections waits and isn't refused.
    """
    bound: list[socket.socket] = []
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            made = socket.socket(family, kind, protocol)
            bound.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address[0], port, *address[2:]))
            port = made.getsockname()[1]  # 0 = any free one, but the same at the next address
            mark(made, dscp)
            made.listen(BACKLOG)
            made.setblocking(False)
    except OSError as error:
        for made in bound:
            made.close()
        raise ConfigError([f"can't listen on {host} port {port}: {error.strerror}"]) from error
    return bound


def mark(made: socket.socket, dscp: int) -> None:
    """Mark a socket's packets (RFC 2474); what a listening one accepts is marked like it. 0 = leave them."""
    if dscp:
        level, option = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if made.family == socket.AF_INET6
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )
        made.setsockopt(level, option, dscp << 2)


async def http_runner(
    routes: Iterable[web.AbstractRouteDef], config: ServiceConfig, lifecycle: Lifecycle | None = None
) -> web.AppRunner:
    """A port's HTTP server. Bodies come as they are sent: who wants them inflated bounds that; a client that leaves
    cancels its handler."""
    app = web.Application()
    app.add_routes(routes)

    async def close_when_draining(_: web.Request, response: web.StreamResponse) -> None:
        if lifecycle is not None and lifecycle.state != "ready":
            response.headers["Connection"] = "close"  # the hook comes after aiohttp wrote this header
            response.force_close()

    app.on_response_prepare.append(close_when_draining)
    make: Callable[..., web.AppRunner] = web.AppRunner
    if lifecycle is not None and config.proxy_protocol:
        make = partial(PrefacedRunner, hops=TrustedHops(config.trusted_hops))
    runner = make(
        app,
        access_log=None,
        logger=_http_log,
        shutdown_timeout=_CLEANUP_TIMEOUT_S,
        keepalive_timeout=config.keepalive_timeout_s,
        handler_cancellation=True,
        auto_decompress=False,
    )
    await runner.setup()
    return runner


def _hide_strangers(record: logging.LogRecord) -> bool:
    """aiohttp logs a malformed request with the client's address and bytes of it: noise, and not ours to keep."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        return False
    record.msg, record.args = record.msg.split(" from %s")[0], ()
    return True


_http_log.addFilter(_hide_strangers)


class Door:
    """An HTTP server on listening sockets."""

    def __init__(self, runner: web.AppRunner) -> None:
        """`runner` is set up."""
        self._runner = runner
        self._listening: list[asyncio.Server] = []

    async def open(self, sockets: Sequence[socket.socket], tls: DoorTls | None = None) -> int:
        """Take connections; returns the port."""
        loop = asyncio.get_running_loop()
        assert self._runner.server is not None
        port: int = sockets[0].getsockname()[1]
        for listening in sockets:
            server = await loop.create_server(
                self._runner.server,
                sock=listening,
                backlog=BACKLOG,
                ssl=tls.context if tls is not None else None,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if tls is not None else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S if tls is not None else None,
            )
            self._listening.append(server)
        return port

    def shut(self) -> None:
        """Take no new connections; those that are open go on."""
        for server in self._listening:
            server.close()
        self._listening.clear()

    async def left(self, timeout_s: float) -> bool:
        """Wait until no connection is open, as an idle one may have a request on its way to us; whether none is."""
        server = self._runner._server  # not `server`: what listens may be a layer in front of it
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        # Nothing tells of a connection's end.
        while server is not None and server.connections and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_IDLE_POLL_S)
        return server is None or not server.connections

    async def close(self) -> None:
        """Close what is left."""
        self.shut()
        await self._runner.cleanup()
