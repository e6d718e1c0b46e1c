"""What one side still has to write, and in which order.

Decides: control before data; one piece per stream and turn, round robin; what fits into a packet.
Must not know: what a message means, whether a frame is legal.
Invariants: a stream waits for at most one piece of every other stream; streams first appear in the order of their ids;
one DATA frame a packet carries the pieces of all its streams; what is kept is bounded (link_queued_bytes_max is kept by
Session, control_frames_max here; load report, pong and credit keep only their latest value or sum).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from nearsay.wire.flow import SendFlow
from nearsay.wire.limits import BUDGET_MS_MAX, PACKET_BYTES, PACKET_PIECES, LinkLimits
from nearsay.wire.protocol import FINAL, Frame, ProtocolError


class Outbox:
    """Frames of one link in the order in which they will be written."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._control: deque[list[Any]] = deque()
        self._load: bytes | None = None
        self._pong: int | None = None
        self._credits: dict[int, int] = {}
        self._ring: deque[SendFlow] = deque()
        self.queued_bytes = 0

    def control(self, *frame: Any) -> None:
        """Queue a control frame. Raises ProtocolError(control_overflow) when the peer doesn't read them."""
        if len(self._control) >= self._limits.control_frames_max:
            raise ProtocolError("control_overflow")
        self._control.append(list(frame))

    def load(self, body: bytes) -> None:
        """Replace the load report that waits, if any."""
        self._load = body

    def pong(self, number: int) -> None:
        """Answer the latest ping only."""
        self._pong = number

    def credit(self, stream: int, cost: int) -> None:
        """Grant credit; grants of one stream add up."""
        self._credits[stream] = self._credits.get(stream, 0) + cost

    def push(self, flow: SendFlow, body: bytes, *, ends: bool = False) -> None:
        """Queue a message on a stream."""
        flow.push(body, ends=ends)
        self.queued_bytes += len(body)
        self.wake(flow)

    def wake(self, flow: SendFlow) -> None:
        """Give the stream a turn if it can use one: after `push`, and after credit came."""
        if not flow.in_ring and flow.sendable:
            flow.in_ring = True
            self._ring.append(flow)

    def drop(self, flow: SendFlow) -> None:
        """Forget a stream that ended: its data and its grants."""
        self.queued_bytes -= flow.drop()
        self._credits.pop(flow.stream, None)

    @property
    def empty(self) -> bool:
        """Nothing to write now (streams without credit don't count)."""
        return not (self._control or self._credits or self._ring) and self._load is None and self._pong is None

    def packet(self, now: float) -> tuple[list[Any], list[int], list[SendFlow]]:
        """Frames of the next packet, ids of the streams it ends, and the streams it drew from.

        Budgets are stamped here: an OPEN frame carries what is left at `now`.
        """
        frames = self._control_frames()
        items: list[Any] = []
        ended: list[int] = []
        drawn: list[SendFlow] = []
        size = pieces = 0
        while self._ring and size < PACKET_BYTES and pieces < PACKET_PIECES:
            flow = self._ring.popleft()
            flow.in_ring = False
            if not flow.sendable:
                continue  # dropped while it waited
            flags, piece = flow.take()
            size += len(piece)
            pieces += 1
            drawn.append(flow)
            if flow.opening_deadline is not None:
                budget_ms = min(max(0.0, (flow.opening_deadline - now) * 1e3), BUDGET_MS_MAX)
                frames.append([Frame.OPEN, flow.stream, flags, budget_ms, piece])
                flow.opening_deadline = None
            else:
                items += (flow.stream, flags, piece)
            if flags == FINAL:
                ended.append(flow.stream)
            self.wake(flow)
        if items:
            frames.append([Frame.DATA, items])
        self.queued_bytes -= size
        return frames, ended, drawn

    def _control_frames(self) -> list[Any]:
        frames: list[Any] = []
        while self._control and len(frames) < PACKET_PIECES:
            frames.append(self._control.popleft())
        if self._pong is not None:
            frames.append([Frame.PONG, self._pong])
            self._pong = None
        if self._load is not None:
            frames.append([Frame.LOAD, self._load])
            self._load = None
        if self._credits:
            streams = list(islice(self._credits, PACKET_PIECES))
            frames.append([Frame.CREDIT, [n for stream in streams for n in (stream, self._credits.pop(stream))]])
        return frames
