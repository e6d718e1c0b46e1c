"""All inbound links of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.live import Handler, Link
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Transport, accept_websocket
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import Hello, LoadReport
from nearsay.wire.protocol import Side
from nearsay.wire.session import ANYBODY, Authorise, one_of


class LinkServer:
    """`handler` runs as a task per stream that a peer opens; see Link for what becomes of its errors."""

    def __init__(
        self,
        *,
        hello: Callable[[], Hello],
        handler: Handler,
        tasks: Tasks,
        limits: LinkLimits,
        clock: Clock,
        secret: str | Authorise = "",
        named_max: int | None = None,
    ) -> None:
        """`named_max`: links of peers that `secret` has a name for; so many at most, so that there is room for others.
        `secret`: what a peer's hello must show, "" = anything goes; or who says what each secret makes of a peer."""
        self._hello = hello
        self._handler = handler
        self._tasks = tasks
        self._limits = limits
        self._clock = clock
        self._authorise = (one_of((secret,)) if secret else ANYBODY) if isinstance(secret, str) else secret
        self._named_max = named_max
        self._links: set[Link] = set()
        self._report: LoadReport | None = None
        self._draining = False

    @property
    def links(self) -> int:
        """Links open now."""
        return len(self._links)

    @property
    def _named(self) -> int:
        return sum(bool(link.who) for link in self._links)

    @property
    def in_flight(self) -> int:
        """Streams open now, over all links."""
        return sum(link.in_flight for link in self._links)

    async def handle(self, request: web.Request, *, context: str = "") -> web.StreamResponse:
        """Serve one link as a WebSocket (GET /link); returns when it is over. `context`: see `Stream.context`."""
        if self._draining or len(self._links) >= self._limits.links_max:
            raise web.HTTPServiceUnavailable(text="no new links")
        transport, response = await accept_websocket(request)
        await self.serve(transport, context=context)
        return response

    async def serve(self, transport: Transport, *, context: str = "") -> None:
        """Serve one link over any transport; returns when it is over."""
        if self._draining or len(self._links) >= self._limits.links_max:
            return await transport.close("unavailable")
        link = Link(
            Side.ACCEPT,
            transport,
            hello=self._hello(),
            handler=self._handler,
            tasks=self._tasks,
            limits=self._limits,
            clock=self._clock,
            authorise=self._authorise,
            context=context,
            on_change=self._changed,
        )
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def publish(self, report: LoadReport) -> None:
        """Send a load report on all links, ahead of data; a link that comes up later starts with the latest."""
        self._report = report
        for link in self._links:
            link.publish(report)

    async def drain(self, timeout_s: float) -> None:
        """Refuse new links and streams, wait for the open streams, close. What is open at the timeout is lost."""
        self._draining = True
        links = list(self._links)
        for link in links:
            link.go_away("draining")
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(link.idle() for link in links))
        except TimeoutError:
            pass  # the caller's bound: the links below are closed with what is still open
        links = list(self._links)
        for link in links:
            link.close("draining")
        await asyncio.gather(*(link.ended.wait() for link in links))

    def _changed(self, link: Link) -> None:
        if self._named_max is not None and link.up and link.who and self._named > self._named_max:
            return link.close("too_many_links")
        if link.up and link.load is None and self._report is not None:
            link.publish(self._report)
