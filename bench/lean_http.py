"""The least HTTP/1.1 that a benchmark needs: a server that answers, a client that keeps one connection.

Both know `Content-Length` bodies only and check no more than framing: what they cost must not hide what is measured.
Not for anything but peers on loopback that are trusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

HEAD_END = b"\r\n\r\n"


class ResponseError(Exception):
    """A response that isn't 200 or was cut off."""


def request_bytes(path: str, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A POST of JSON, ready to be written."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Framer:
    """Cuts a byte stream into messages (head, body)."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """All messages that are complete now; one without a length has no body."""
        self._buffer += data
        messages = []
        while (end := self._buffer.find(HEAD_END)) >= 0:
            head = self._buffer[:end]
            stop = end + len(HEAD_END) + content_length(head)
            if len(self._buffer) < stop:
                break
            messages.append((head, self._buffer[end + len(HEAD_END) : stop]))
            self._buffer = self._buffer[stop:]
        return messages


def content_length(head: bytes) -> int:
    """0 without one."""
    lower = head.lower()
    start = lower.find(b"\r\ncontent-length:")
    if start < 0:
        return 0
    return int(lower[start + 17 :].split(b"\r\n", 1)[0])


class EchoServer(asyncio.Protocol):
    """Answers each request with what `answer(head, body)` gives."""

    def __init__(self, answer: Callable[[bytes, bytes], bytes]) -> None:
        self._answer = answer
        self._framer = Framer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't one by inheritance

    def data_received(self, data: bytes) -> None:
        for head, body in self._framer.feed(data):
            answer = self._answer(head, body)
            length = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            self._transport.write(length.encode() + answer)


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self) -> None:
        self._framer = Framer()
        self._waiter: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to loopback."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't one by inheritance

    async def post(self, request: bytes) -> bytes:
        """The body of the answer. Raises ResponseError."""
        assert self._waiter is None, "one request at a time"
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        self._transport.write(request)
        try:
            return await waiter
        finally:
            self._waiter = None

    def data_received(self, data: bytes) -> None:
        try:
            for head, body in self._framer.feed(data):
                if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                    raise ResponseError(head.split(b"\r\n", 1)[0].decode("latin-1"))
                if self._waiter is not None and not self._waiter.done():
                    self._waiter.set_result(body)
        except ResponseError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ResponseError("connection lost"))

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def _fail(self, error: ResponseError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
