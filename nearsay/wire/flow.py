"""Credit of one stream, one half each way: what may be sent, what may still come.

Decides: how a message is cut into pieces and put together again, when a reader grants more.
Must not know: frames, other streams, time.
Invariants: pieces sent never cost more than was granted; a reader holds at most two windows of whole messages and one
message in the making (the peer that sends more breaks the protocol); bytes come out as they went in.
A message longer than the window still gets through: pieces of an incomplete message don't count as unread.
"""

from __future__ import annotations

from collections import deque

import msgspec

from nearsay.wire.limits import FRAGMENT_BYTES, ITEM_OVERHEAD_BYTES, WINDOW_BYTES
from nearsay.wire.protocol import FINAL, MORE, ProtocolError


class SendFlow(msgspec.Struct):
    """Bodies waiting to be written on one stream, and the credit they may use."""

    stream: int
    credit: int = WINDOW_BYTES
    queued_bytes: int = 0
    bodies: deque[bytes] = msgspec.field(default_factory=deque)
    offset: int = 0  # of the first body: what is written of it
    ends: bool = False  # the last body is the stream's final message
    opening_deadline: float | None = None  # the next piece opens the stream; the instant its budget runs out
    in_ring: bool = False  # owned by Outbox: has a turn coming

    def push(self, body: bytes, *, ends: bool = False) -> None:
        """Queue one message."""
        assert not self.ends, "a message after the final one"
        self.bodies.append(body)
        self.queued_bytes += len(body)
        self.ends = ends

    @property
    def sendable(self) -> bool:
        """There is a body and credit for at least one byte of it."""
        return bool(self.bodies) and self.credit > ITEM_OVERHEAD_BYTES

    def take(self) -> tuple[int, bytes]:
        """Flags and bytes of the next piece; needs `sendable`."""
        body = self.bodies[0]
        left = len(body) - self.offset
        size = min(left, FRAGMENT_BYTES, self.credit - ITEM_OVERHEAD_BYTES)
        piece = body if size == len(body) else body[self.offset : self.offset + size]
        self.credit -= size + ITEM_OVERHEAD_BYTES
        self.queued_bytes -= size
        if size < left:
            self.offset += size
            return MORE, piece
        self.bodies.popleft()
        self.offset = 0
        return (FINAL if self.ends and not self.bodies else 0), piece

    def drop(self) -> int:
        """Forget what is queued; returns how many bytes that was."""
        dropped = self.queued_bytes
        self.bodies.clear()
        self.queued_bytes = 0
        return dropped


class ReceiveFlow(msgspec.Struct):
    """Pieces of one stream to messages, and the credit that its reader earns. Counts are costs (bytes + overhead)."""

    granted: int = WINDOW_BYTES
    received: int = 0
    unread: int = 0  # whole messages handed up and not consumed yet
    partial: bytearray | None = None
    partial_cost: int = 0

    def add(self, piece: bytes, more: bool, message_bytes_max: int) -> tuple[bytes, int] | None:
        """The whole message and its cost once its last piece is here, None before.

        Raises ProtocolError, and changes nothing else then: credit_exceeded, message_too_big, malformed_packet (an
        empty piece, or one too long).
        """
        cost = len(piece) + ITEM_OVERHEAD_BYTES
        self.received += cost
        if self.received > self.granted:
            raise ProtocolError("credit_exceeded")
        if not 0 < len(piece) <= FRAGMENT_BYTES:
            raise ProtocolError("malformed_packet", f"a piece of {len(piece)} bytes")
        if len(piece) + len(self.partial or b"") > message_bytes_max:
            raise ProtocolError("message_too_big", f"more than {message_bytes_max} bytes")
        if self.partial is None and not more:
            self.unread += cost
            return piece, cost
        return self._join(piece, cost, more)

    def _join(self, piece: bytes, cost: int, more: bool) -> tuple[bytes, int] | None:
        if self.partial is None:
            self.partial = bytearray()
        self.partial += piece
        self.partial_cost += cost
        if more:
            return None
        whole, cost = bytes(self.partial), self.partial_cost
        self.partial, self.partial_cost = None, 0
        self.unread += cost
        return whole, cost

    @property
    def held(self) -> int:
        """Cost of everything received and not consumed."""
        return self.unread + self.partial_cost

    def grant(self) -> int:
        """Credit to send now: 0 until it is worth a frame (half a window)."""
        more = self.received + WINDOW_BYTES - self.unread - self.granted
        if more < WINDOW_BYTES // 2:
            return 0
        self.granted += more
        return more
