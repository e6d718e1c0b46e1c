"""A session made live: three small tasks (read, write, tick) between a transport and the streams' users.

Writes are gathered per turn of the event loop: whatever was queued in one turn leaves in as few packets as fit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nearsay.runtime.clock import Clock
from nearsay.runtime.stream import Stream
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Transport
from nearsay.wire import events as ev
from nearsay.wire.errors import InternalError, LinkLost, NearsayError, Unavailable
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import Hello, LoadReport, Message
from nearsay.wire.protocol import LinkState, ProtocolError, Side
from nearsay.wire.session import ANYBODY, Authorise, Session

Handler = Callable[[Stream], Awaitable[None]]
_log = logging.getLogger(__name__)


class Link:
    """One connection to a peer: `run` it, `open` streams on it."""

    def __init__(
        self,
        side: Side,
        transport: Transport,
        *,
        hello: Hello,
        handler: Handler | None,
        tasks: Tasks,
        limits: LinkLimits,
        clock: Clock,
        authorise: Authorise = ANYBODY,
        context: str = "",
        on_change: Callable[[Link], None] | None = None,
    ) -> None:
        """`on_change` is called when the link is up, with each load report and round trip, on go-away, at the end."""
        self.load: LoadReport | None = None
        self.context = context
        self.closed = False
        self.reason = ""  # why it ended
        self.ended = asyncio.Event()  # `run` is through: the transport is closed
        self._session = Session(side, hello, limits, now=clock(), authorise=authorise)
        self._transport = transport
        self._handler = handler
        self._tasks = tasks
        self._tick_s = min(limits.ping_interval_s, limits.hello_timeout_s) / 2
        self._clock = clock
        self._on_change = on_change
        self._streams: dict[int, Stream] = {}
        self._handlers: dict[int, asyncio.Task[None]] = {}
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._writer: asyncio.Future[None] | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []

    @property
    def hello(self) -> Hello | None:
        """The peer's hello, None before it came."""
        return self._session.remote

    @property
    def who(self) -> str:
        """What the peer that connected to us was recognised as."""
        return self._session.who

    @property
    def up(self) -> bool:
        """New streams can be opened."""
        return self._session.state is LinkState.UP and not self._session.peer_leaving

    @property
    def leaving(self) -> bool:
        """The peer sent go-away."""
        return self._session.peer_leaving

    @property
    def rtt_s(self) -> float | None:
        """Round trip to the peer in seconds, None while it isn't known."""
        return self._session.rtt_s

    @property
    def in_flight(self) -> int:
        """Streams open on this side, either way."""
        return len(self._streams)

    async def open(self, message: Message) -> Stream:
        """Open a stream. Raises Unavailable, Overloaded or InvalidRequest; never waits."""
        stream = Stream(self, self._session.open(message, self._clock()), message)
        self._streams[stream.id] = stream
        self._kick()
        return stream

    def publish(self, report: LoadReport) -> None:
        """Send a load report ahead of all data."""
        self._session.report(report)
        self._kick()

    def go_away(self, reason: str) -> None:
        """Take no new streams on this link."""
        self._session.go_away(reason)
        self._kick()

    async def idle(self) -> None:
        """Wait until no stream is open and everything is written, or the link is over."""
        while not self.closed and (self._session.streams or self._session.pending or self._writer is None):
            waiter = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def close(self, reason: str = "") -> None:
        """End the link; its streams fail with LinkLost at once. `run` returns after the transport is closed."""
        self._finish(reason)

    async def run(self) -> None:
        """Serve the link until it is over: closed, lost, or ended by a protocol error."""
        loops = {"read": self._read(), "write": self._write(), "tick": self._tick()}
        tasks = [self._tasks.spawn(loop, name=f"link {name}") for name, loop in loops.items()]
        for task in tasks:
            task.add_done_callback(lambda _: self._finish("internal_error"))
        try:
            await asyncio.shield(self._over)
        finally:
            self._finish("cancelled")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._transport.close(self.reason)
            self.ended.set()

    # ---- the three loops ---------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                packet = await self._transport.receive()
                for event in self._session.receive(packet, self._clock()):
                    self._on_event(event)
                self._kick()
        except ProtocolError as error:
            self._broken(error)
        except ConnectionError as error:
            self._finish(str(error))

    async def _write(self) -> None:
        try:
            while True:
                while packet := self._session.data_to_send(self._clock()):
                    await self._transport.send(packet)
                for stream in self._session.released():
                    if stream in self._streams:
                        self._streams[stream].wake_writers()
                if not self._session.pending:
                    self._writer = asyncio.get_running_loop().create_future()
                    self._wake_idle()
                    await self._writer
                    self._writer = None
        except ProtocolError as error:
            self._broken(error)
        except ConnectionError as error:
            self._finish(str(error))

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                self._session.tick(self._clock())
                self._kick()
        except ProtocolError as error:
            self._broken(error)

    def _kick(self) -> None:
        """Wake the writer when there is work for it; it runs once this turn of the loop is over."""
        if self._writer is None or self._writer.done():
            return
        if self._session.pending:
            self._writer.set_result(None)
        elif not self._session.streams:
            self._wake_idle()

    def _wake_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _broken(self, error: ProtocolError) -> None:
        _log.info("link ended: %s", error)  # no warning: strangers could fill the log; a Peer warns of its own links
        self._finish(error.code)

    def _finish(self, reason: str) -> None:
        """The one place where a link ends: its streams fail, their handlers are cancelled, `run` is woken."""
        if self.closed:
            return
        self.closed = True
        self.reason = reason
        self._session.close()
        for stream in list(self._streams.values()):
            self._fail(stream, LinkLost(reason))
        self._wake_idle()
        self._over.set_result(reason)
        self._changed()

    def _fail(self, stream: Stream, error: NearsayError) -> None:
        handler = self._handlers.get(stream.id)
        stream.fail(error)
        if handler is not None:
            handler.cancel()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self)

    # ---- events ------------------------------------------------------------------------------------------------------

    def _on_event(self, event: ev.Event) -> None:
        match event:
            case ev.Received(stream=stream, message=message, cost=cost):
                if stream in self._streams:
                    self._streams[stream].deliver(message, cost)
            case ev.Done(stream=stream, message=message):
                if stream in self._streams:
                    self._streams[stream].deliver_final(message)
            case ev.Opened(stream=stream, message=message):
                self._opened(Stream(self, stream, message))
            case ev.Failed(stream=stream, error=error):
                if stream in self._streams:
                    self._fail(self._streams[stream], error)
            case ev.Load(report=report):
                self.load = report
                self._changed()
            case _:  # Up, GoAway, Timed: the session knows
                self._changed()

    def _opened(self, stream: Stream) -> None:
        if self._handler is None:
            self._session.reject(stream.id, Unavailable("this side takes no requests"))
            return
        self._streams[stream.id] = stream
        task = self._tasks.spawn(self._handle(self._handler, stream), name="link handler")
        self._handlers[stream.id] = task
        task.add_done_callback(lambda task: self._handled(stream, task))

    async def _handle(self, handler: Handler, stream: Stream) -> None:
        try:
            await handler(stream)
        except NearsayError as error:
            stream.reject_nowait(error)
        except Exception:
            _log.exception("a handler crashed")
            stream.reject_nowait(InternalError())

    def _handled(self, stream: Stream, task: asyncio.Task[None]) -> None:
        """Whatever became of the handler, the stream has ended: also when the task was cancelled before it began."""
        del self._handlers[stream.id]
        if stream.ended:
            return
        if task.cancelled():
            stream.reject_nowait(Unavailable("the service is shutting down", code="draining"))
        else:
            _log.error("a handler returned without an answer")
            stream.reject_nowait(InternalError("no answer"))

    # ---- called by streams -------------------------------------------------------------------------------------------

    def can_send(self, stream: int) -> bool:
        """Whether a message may be queued; when not, the stream's writers are woken later."""
        return self._session.can_send(stream)

    def send(self, stream: int, message: Message, *, final: bool) -> None:
        """Queue a message."""
        self._session.send(stream, message, final=final)
        self._kick()

    def reject(self, stream: int, error: NearsayError) -> None:
        """End a stream with an error."""
        self._session.reject(stream, error)
        self._kick()

    def cancel(self, stream: int) -> None:
        """End a stream early."""
        self._session.cancel(stream)
        self._kick()

    def consumed(self, stream: int, cost: int) -> None:
        """A message was read."""
        self._session.consumed(stream, cost)
        self._kick()

    def forget(self, stream: int) -> None:
        """The stream has ended for its user."""
        self._streams.pop(stream, None)
