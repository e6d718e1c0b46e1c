"""One stream of a link as its users see it: messages out, messages in, an end.

A permit (the stream's place in the session) is released exactly once: by the final message, a reject, a cancel or the
loss of the link, whichever comes first. All calls belong to the link's event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, Self

from nearsay.wire.errors import Cancelled, NearsayError
from nearsay.wire.messages import Hello, Message


class EndOfStream(Exception):
    """Nothing comes after the final message."""


class StreamOwner(Protocol):
    """What a stream needs of its link."""

    @property
    def hello(self) -> Hello | None: ...
    @property
    def who(self) -> str: ...
    @property
    def context(self) -> str: ...
    def can_send(self, stream: int) -> bool: ...
    def send(self, stream: int, message: Message, *, final: bool) -> None: ...
    def reject(self, stream: int, error: NearsayError) -> None: ...
    def cancel(self, stream: int) -> None: ...
    def consumed(self, stream: int, cost: int) -> None: ...
    def forget(self, stream: int) -> None: ...


class Stream:
    """`message` is the one that opened it. The side that opened it receives; the other sends and finishes."""

    def __init__(self, link: StreamOwner, stream: int, message: Message) -> None:
        self.message = message
        self.id = stream
        self.error: NearsayError | None = None  # why it ended early
        self.ended = False  # no more sending, nothing more will come in
        self._link = link
        self._inbox: deque[tuple[Message, int]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []

    @property
    def peer(self) -> Hello | None:
        """The hello of the process on the other side."""
        return self._link.hello

    @property
    def who(self) -> str:
        """What that process was recognised as by the secret in its hello."""
        return self._link.who

    @property
    def context(self) -> str:
        """What the door that let the link in knew of the connection."""
        return self._link.context

    async def send(self, message: Message) -> None:
        """Queue a message; waits while the stream or link is out of room. Raises the error that ended the stream."""
        self._check_open()
        if not self._link.can_send(self.id):
            await self._room()
        self._link.send(self.id, message, final=False)

    def send_nowait(self, message: Message) -> None:
        """Queue a message. Raises Overloaded past the stream's bound, or the error that ended the stream."""
        self._check_open()
        self._link.send(self.id, message, final=False)

    async def finish(self, message: Message) -> None:
        """Queue the final message and end the stream."""
        self._check_open()
        if not self._link.can_send(self.id):
            await self._room()
        self.finish_nowait(message)

    def finish_nowait(self, message: Message) -> None:
        """As `finish`, without waiting. Raises Overloaded only when the whole link is out of room."""
        self._check_open()
        self._link.send(self.id, message, final=True)
        self._end(None)

    async def reject(self, error: NearsayError) -> None:
        """End the stream with an error; no effect once it has ended."""
        self.reject_nowait(error)

    def reject_nowait(self, error: NearsayError) -> None:
        """As `reject`: a control frame never waits."""
        if not self.ended:
            self._link.reject(self.id, error)
            self._end(error)

    def cancel(self) -> None:
        """End the stream early and tell the peer; idempotent, no effect once it has ended."""
        if not self.ended:
            self._inbox.clear()
            self._link.cancel(self.id)
            self._end(Cancelled())

    async def receive(self) -> Message:
        """The peer's next message.

        Raises what the peer rejected with, LinkLost, Cancelled, and EndOfStream after the final message.
        """
        while not self._inbox:
            if self.error is not None:
                raise self.error
            if self.ended:
                raise EndOfStream
            assert self._reader is None, "one reader at a time"
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message, cost = self._inbox.popleft()
        if cost and not self.ended:
            self._link.consumed(self.id, cost)
        return message

    def __aiter__(self) -> Self:
        """Messages until and including the final one."""
        return self

    async def __anext__(self) -> Message:
        """As `receive`, but the end is the iterator's."""
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    # ---- called by the link ------------------------------------------------------------------------------------------

    def deliver(self, message: Message, cost: int) -> None:
        """A message came in."""
        self._inbox.append((message, cost))
        self._wake_reader()

    def deliver_final(self, message: Message) -> None:
        """The final message came in."""
        self._inbox.append((message, 0))
        self._end(None)

    def fail(self, error: NearsayError) -> None:
        """The peer or the link ended the stream early."""
        if self.ended:
            return
        self._end(error)

    def wake_writers(self) -> None:
        """There is room again, or none will ever be needed."""
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)

    # ------------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error
        assert not self.ended, "sending after the final message"

    async def _room(self) -> None:
        """Wait until the link lets this stream queue again."""
        while True:
            writer = asyncio.get_running_loop().create_future()
            self._writers.append(writer)
            await writer
            self._check_open()
            if self._link.can_send(self.id):
                return

    def _end(self, error: NearsayError | None) -> None:
        self.ended = True
        self.error = error
        self._wake_reader()
        self.wake_writers()
        self._link.forget(self.id)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
