"""Server-sent events, incrementally: bytes in, whole events out (WHATWG HTML, section 9.2.6).

Knows no socket. Comments (heartbeats), `id` and `retry` are read over; an event without data is none; what stands after
the last blank line is not an event. Invariants: however the bytes are cut, the same events come out; held bytes are
bounded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nearsay.wire.errors import InternalError

EVENT_BYTES_MAX = 8 << 20
_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerEvent(NamedTuple):
    """One event: its type ("message" when the server named none) and its data lines joined by newlines."""

    kind: str
    data: str


class EventParser:
    """Feed it bytes as they arrive. One parser per response."""

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = event_bytes_max
        self._line = b""  # start of a line whose end hasn't come yet
        self._kind = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._at_start = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Events completed by `chunk`. Raises InternalError when one grows past its limit."""
        *lines, self._line = self._cut(self._line + chunk)
        events = [event for event in map(self._take, lines) if event is not None]
        if len(self._line) + self._data_bytes > self._bytes_max:
            raise InternalError(f"an event is larger than {self._bytes_max} bytes")
        return events

    def _cut(self, data: bytes) -> list[bytes]:
        # A closing CR may be the first half of CRLF: it waits for the next byte.
        held = data[-1:] if data.endswith(b"\r") else b""
        pieces = _LINE_END.split(data[: len(data) - len(held)])
        pieces[-1] += held
        return pieces

    def _take(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        return None

    def _dispatch(self) -> ServerEvent | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data, self._data_bytes = "", [], 0
        return ServerEvent(kind, b"\n".join(data).decode(errors="replace")) if data else None
