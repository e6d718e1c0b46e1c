"""Updates on their way to a reader who may be slow."""

from __future__ import annotations

import asyncio

from nearsay.runtime.link import Stream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError, Overloaded
from nearsay.wire.messages import Update


class Outbox:
    """Sends updates without making whoever produces them wait: neither engine nor origin slot is held for a reader.

    While the stream has no room, only the newest state of each segment is kept, so that at most one update a segment
    waits, and a restart before them. A stream that has ended swallows what comes.
    """

    def __init__(self, stream: Stream, tasks: Tasks) -> None:
        self._stream = stream
        self._tasks = tasks
        self._waiting: dict[tuple[bool, int, int], Update] = {}
        self._sender: asyncio.Task[None] | None = None

    def put(self, update: Update) -> None:
        """Send now, or as soon as there is room."""
        if self._sender is None:
            try:
                return self._stream.send_nowait(update)
            except Overloaded:
                self._sender = self._tasks.spawn(self._send(), name="updates for a slow reader")
            except NearsayError:
                return None  # the stream has ended; its handler is told by the link
        self._waiting[update.kind == "restart", update.item, update.segment] = update
        return None

    async def flush(self) -> None:
        """Wait until the reader has room for everything that was put."""
        if self._sender is not None:
            await self._sender

    def close(self) -> None:
        """Drop what waits."""
        if self._sender is not None:
            self._sender.cancel()

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._stream.send(self._waiting.pop(next(iter(self._waiting))))
        except NearsayError:
            self._waiting.clear()  # as in `put`
        self._sender = None
