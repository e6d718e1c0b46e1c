"""The writing half of a session: what we open, send, refuse and grant.

Decides: what may be queued, and the bounds of every queue.
Must not know: frames of the peer, sockets, tasks, clocks (`now` is an argument).
Invariants: queued bytes keep to LinkLimits (but a stream can always queue its final message); a stream ends exactly
once; after `close` nothing is sent.
`budget_ms`: `open` turns the message's budget into an instant; the OPEN frame carries what is left when it is written.
"""

from __future__ import annotations

from typing import Any

from nearsay.wire.codec import Codec
from nearsay.wire.errors import Cancelled, InvalidRequest, NearsayError, Overloaded, Unavailable
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import Hello, LoadReport, Message
from nearsay.wire.outbox import Outbox
from nearsay.wire.protocol import Frame, LinkState, ProtocolError, Side, StreamState
from nearsay.wire.streams import StreamRecord, Streams

_DETAIL_CHARACTERS_MAX = 500


class SendingHalf:
    """Everything of a session that ends in `data_to_send`."""

    def __init__(self, side: Side, limits: LinkLimits) -> None:
        self.state = LinkState.GREETING
        self.remote: Hello | None = None
        self.peer_leaving = False  # it sent go-away: open nothing
        self.leaving = False  # we did: refuse what it opens
        self.streams = Streams(side)
        self._limits = limits
        self._codec = Codec(limits)
        self._out = Outbox(limits)
        self._failure: ProtocolError | None = None
        self._released: list[int] = []
        self._link_blocked: dict[int, None] = {}
        self._go_away_reason = ""

    def data_to_send(self, now: float) -> bytes:
        """The next packet, b"" when there is nothing to write. Raises ProtocolError(control_overflow)."""
        if self._failure is not None and self.state is not LinkState.CLOSED:
            self.close()
            raise self._failure
        if self._out.empty:
            return b""
        frames, ended, drawn = self._out.packet(now)
        for stream in ended:
            record = self.streams.get(stream)
            assert record is not None
            self._close(record)
        self._release([flow.stream for flow in drawn])
        return self._codec.pack(frames) if frames else b""

    @property
    def pending(self) -> bool:
        """There may be something to write, or somebody to wake."""
        if self.state is LinkState.CLOSED:
            return False
        return not self._out.empty or bool(self._released) or self._failure is not None

    def released(self) -> list[int]:
        """Streams that `can_send` refused and that may queue again since the last call."""
        released, self._released = self._released, []
        return released

    def open(self, message: Message, now: float) -> int:
        """Open a stream; its id. Raises Unavailable, Overloaded, InvalidRequest."""
        if self.state is not LinkState.UP:
            raise Unavailable("the link is not up")
        if self.peer_leaving:
            raise Unavailable("the peer takes no new requests", code="draining")
        if self.streams.ours >= self._limits.streams_max:
            raise Overloaded(f"{self._limits.streams_max} requests are open", code="too_many_streams")
        body = self._encode(message)
        self._check_link_room(body)
        record = self.streams.open_ours()
        record.send.opening_deadline = now + getattr(message, "budget_ms", 0.0) / 1e3
        self._out.push(record.send, body)
        return record.id

    def can_send(self, stream: int) -> bool:
        """Whether a message fits the stream's and the link's queue. When not, `released` names the stream later."""
        record = self.streams.get(stream)
        assert record is not None
        limits = self._limits
        if record.send.queued_bytes < limits.stream_queued_bytes_max // 2:
            if self._out.queued_bytes < limits.link_queued_bytes_max // 2:
                return True
            self._link_blocked[stream] = None
        record.blocked = True
        return False

    def send(self, stream: int, message: Message, *, final: bool = False) -> None:
        """Queue a message on an open stream; the final one ends it once written. Raises Overloaded, InvalidRequest.

        The final message is not held against the stream's bound: a stream can always end.
        """
        record = self.streams.get(stream)
        assert record is not None and not (final and record.state is StreamState.ASKING)
        body = self._encode(message)
        self._check_link_room(body)
        queued = record.send.queued_bytes
        if queued and not final and queued + len(body) > self._limits.stream_queued_bytes_max:
            raise Overloaded("the reader is too slow")
        self._out.push(record.send, body, ends=final)

    def reject(self, stream: int, error: NearsayError) -> None:
        """End a stream of the peer with an error; what is queued on it is dropped. No effect on a closed stream."""
        record = self.streams.get(stream)
        if record is not None:
            assert record.state is not StreamState.ASKING
            self._close(record)
            self._refuse(stream, error)

    def cancel(self, stream: int) -> None:
        """End a stream from either side. No effect on a closed one."""
        record = self.streams.get(stream)
        if record is None:
            return
        if record.state is not StreamState.ASKING:
            return self.reject(stream, Cancelled())
        unwritten = record.send.opening_deadline is not None
        self._close(record)
        if not unwritten:
            self._control(Frame.CANCEL, stream)

    def consumed(self, stream: int, cost: int) -> None:
        """A received message was read: earns the peer credit. No effect on a closed stream."""
        record = self.streams.get(stream)
        if record is not None:
            record.receive.unread -= cost
            self.streams.held_bytes -= cost
            self._grant(record)

    def report(self, load: LoadReport) -> None:
        """Send a load report, ahead of data; only the latest is kept."""
        if self.state is LinkState.UP:
            self._out.load(self._codec.encode(load))

    def go_away(self, reason: str) -> None:
        """Take no new streams from now on; open ones go on."""
        self.leaving = True
        self._go_away_reason = reason
        if self.state is LinkState.UP:
            self._control(Frame.GO_AWAY, reason)

    def close(self) -> None:
        """Finish: nothing is sent or understood any more."""
        self.state = LinkState.CLOSED
        self.streams.clear()
        self._out = Outbox(self._limits)

    def _encode(self, message: Message) -> bytes:
        body = self._codec.encode(message)
        assert self.remote is not None
        bytes_max = self.remote.message_bytes_max
        if len(body) > bytes_max:
            raise InvalidRequest(f"the message has {len(body)} bytes, the peer takes {bytes_max}", code="text_too_long")
        return body

    def _check_link_room(self, body: bytes) -> None:
        queued = self._out.queued_bytes
        if queued and queued + len(body) > self._limits.link_queued_bytes_max:
            raise Overloaded("the link is too slow")

    def _close(self, record: StreamRecord) -> None:
        self._out.drop(record.send)
        self.streams.close(record)
        if record.blocked:
            self._released.append(record.id)
        if self._link_blocked:
            self._release([])

    def _release(self, drawn: list[int]) -> None:
        """Note which blocked streams have room again, of those just drawn from and those that waited for the link."""
        if self._link_blocked and self._out.queued_bytes < self._limits.link_queued_bytes_max // 2:
            drawn += self._link_blocked
            self._link_blocked = {}
        for stream in drawn:
            record = self.streams.get(stream)
            if record is not None and record.blocked and self.can_send(stream):
                record.blocked = False
                self._released.append(stream)

    def _refuse(self, stream: int, error: NearsayError) -> None:
        detail = error.detail[:_DETAIL_CHARACTERS_MAX].encode("utf-8", "replace").decode()
        retry_after_ms = -1.0 if error.retry_after_ms is None else float(error.retry_after_ms)
        self._control(Frame.REJECT, stream, error.code, detail, retry_after_ms)

    def _grant(self, record: StreamRecord) -> None:
        if cost := record.receive.grant():
            self._out.credit(record.id, cost)

    def _control(self, *frame: Any) -> None:
        """Queue a control frame; a peer that doesn't read them fails the link at the next call that may raise."""
        try:
            self._out.control(*frame)
        except ProtocolError as error:
            self._failure = error
