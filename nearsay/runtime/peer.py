"""An outbound link that comes back: connects, reconnects with back-off, moves on when the peer goes away."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import aiohttp

from nearsay.runtime.backoff import Backoff
from nearsay.runtime.clock import Clock
from nearsay.runtime.live import Link
from nearsay.runtime.stream import Stream
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Connect, Dial, Transport, websocket_connect
from nearsay.wire.errors import Unavailable
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import Hello, LoadReport, Message
from nearsay.wire.protocol import Side

_log = logging.getLogger(__name__)


class Peer:
    """A live session to one endpoint, kept up in the background.

    A link whose peer sends go-away finishes its open streams on the side while a new one is made.
    """

    def __init__(
        self,
        url: str,
        *,
        hello: Callable[[], Hello],
        tasks: Tasks,
        limits: LinkLimits,
        clock: Clock,
        connect: Connect | None = None,
        rng: random.Random | None = None,
        dial: Dial = Dial(),  # noqa: B008 - frozen
    ) -> None:
        """`dial`: how to connect where no `connect` is given."""
        self.url = url
        self.hello: Hello | None = None  # the latest one, kept while the link is down
        self.reason = ""  # why the last link or try failed
        self._hello = hello
        self._tasks = tasks
        self._limits = limits
        self._clock = clock
        self._connect = connect
        self._dial = dial
        self._backoff = Backoff(limits.backoff_min_s, limits.backoff_max_s, rng or random.Random())
        self._http: aiohttp.ClientSession | None = None
        self._link: Link | None = None
        self._running: dict[Link, asyncio.Task[None]] = {}
        self._turned = asyncio.Event()  # the current link is over or going away
        self._callbacks: list[Callable[[], None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def ready(self) -> bool:
        """Streams can be opened now."""
        return self._link is not None and self._link.up

    @property
    def load(self) -> LoadReport | None:
        """The latest load report of the current link."""
        return self._link.load if self._link is not None else None

    @property
    def rtt_s(self) -> float | None:
        """Round trip of the current link in seconds, None while it isn't known."""
        return self._link.rtt_s if self._link is not None else None

    @property
    def in_flight(self) -> int:
        """Streams open now, on the current link and on those that finish."""
        return sum(link.in_flight for link in self._running)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call when the link comes up or goes down, with each load report and measured round trip, and when a try fails
        for a new reason."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        assert self._keeper is None, "started twice"
        if self._connect is None:
            self._http = aiohttp.ClientSession()
            self._connect = websocket_connect(self._http, self._dial)
        self._keeper = self._tasks.spawn(self._keep(self._connect), name=f"peer {self.url}")

    async def open(self, message: Message) -> Stream:
        """Open a stream. Raises Unavailable when not connected, Overloaded or InvalidRequest; never waits."""
        if self._link is None or not self._link.up:
            raise Unavailable(f"not connected: {self.reason}" if self.reason else "not connected yet")
        return await self._link.open(message)

    async def close(self) -> None:
        """Close all links; open streams fail with LinkLost."""
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for link in list(self._running):
            link.close()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def _keep(self, connect: Connect) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.connect_timeout_s):
                    transport = await connect(self.url)
            except (OSError, TimeoutError) as error:  # ConnectionError is an OSError
                if self._failed(str(error) or type(error).__name__):
                    self._tell()
            else:
                self._turned.clear()
                self._begin(transport)
                await self._turned.wait()
            await asyncio.sleep(self._backoff.next())

    def _begin(self, transport: Transport) -> None:
        link = Link(
            Side.CONNECT,
            transport,
            hello=self._hello(),
            handler=None,
            tasks=self._tasks,
            limits=self._limits,
            clock=self._clock,
            on_change=self._changed,
        )
        self._link = link
        task = self._tasks.spawn(link.run(), name=f"link to {self.url}")
        self._running[link] = task
        task.add_done_callback(lambda _: self._running.pop(link))

    def _changed(self, link: Link) -> None:
        if link is not self._link:
            return  # one that finishes on the side
        if link.closed:
            self._link = None
            if not self._closing:
                self._failed(link.reason or "closed")
            self._turned.set()
        elif link.leaving:
            self._link = None
            self._tasks.spawn(_finish(link), name=f"last streams to {self.url}")
            self._turned.set()
        elif self.hello is not link.hello:
            self.hello = link.hello
            self.reason = ""
            self._backoff.reset()
            _log.info("link to %s is up", self.url)
        self._tell()

    def _failed(self, reason: str) -> bool:
        """Note why there is no link; whether that is news."""
        if reason == self.reason:
            return False
        self.reason = reason
        _log.warning("no link to %s: %s", self.url, reason)
        return True

    def _tell(self) -> None:
        for callback in tuple(self._callbacks):
            callback()


async def _finish(link: Link) -> None:
    await link.idle()
    link.close()
