"""Server-sent events: each written at once, heartbeats while nothing happens, a bound on a client that stops reading.

The response begins with its first event or heartbeat: until then a failure is still an honest HTTP status.
Nothing is queued here: `send` waits while the client's socket is full, and with it the edge's stream and the edge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import Cancelled, NearsayError
from proxy.core.limits import AnswerLimits

MEDIA_TYPE = "text/event-stream"
HEADERS = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store, no-transform",  # a proxy that compresses would hold events back
    "X-Accel-Buffering": "no",  # nginx passes each event on at once
}
HEARTBEAT = b": still here\n\n"


async def bounded_write(request: web.Request, timeout_s: float, write: Awaitable[object]) -> None:
    """Wait for a write to a client, but cut off one that takes nothing for `timeout_s`. Raises Cancelled."""
    try:
        async with asyncio.timeout(timeout_s):
            await write
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise Cancelled(f"the client read nothing for {timeout_s:g} s") from None
    except ConnectionError:
        raise Cancelled("the client left") from None


def event(name: str, data: bytes) -> bytes:
    """One event; `data` is JSON on one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class EventStream:
    """The event stream that answers one request. Use as `async with`; `started` says whether the status is fixed."""

    def __init__(
        self,
        request: web.Request,
        headers: Callable[[], Mapping[str, str]],
        limits: AnswerLimits,
        *,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        """`headers` is asked when the response begins."""
        self.started = False
        self.response = web.StreamResponse(headers=HEADERS)
        self._headers = headers
        self._request = request
        self._limits = limits
        self._tasks = tasks
        self._clock = clock
        self._written_at = clock()
        self._writing = asyncio.Lock()
        self._heartbeats: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EventStream:
        self._heartbeats = self._tasks.spawn(self._beat(), name="sse heartbeats")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop_heartbeats()
        if kind is not None and self.started and self._request.transport is not None:
            self._request.transport.abort()  # no second answer may follow half of a first one

    async def send(self, name: str, data: bytes) -> None:
        """Write one event. Raises Cancelled when the client has left, or has stopped reading for too long."""
        await self._write(event(name, data))

    async def finish(self) -> None:
        """End the stream; the connection may serve another request."""
        self._stop_heartbeats()
        await bounded_write(self._request, self._limits.write_timeout_s, self.response.write_eof())

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if not self.started:
                self.started = True
                self.response.headers.update(self._headers())
                await bounded_write(self._request, self._limits.write_timeout_s, self.response.prepare(self._request))
            await bounded_write(self._request, self._limits.write_timeout_s, self.response.write(data))
            self._written_at = self._clock()

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()

    async def _beat(self) -> None:
        while True:
            silent_s = self._clock() - self._written_at
            if silent_s < self._limits.heartbeat_s:
                await asyncio.sleep(self._limits.heartbeat_s - silent_s)
                continue
            try:
                await self._write(HEARTBEAT)
            except NearsayError:  # the client is gone: the handler learns it from its own write or its cancellation
                return
