"""The streams of one link as one side sees them.

Decides: which id is next, what state an id is in, how many streams and unread bytes there are.
Must not know: frames, messages, time.
Invariants: ids only rise; a closed stream leaves nothing behind but the fact that its id has passed; `held_bytes` is
the sum over open streams of what was received and not consumed.
"""

from __future__ import annotations

import msgspec

from nearsay.wire.flow import ReceiveFlow, SendFlow
from nearsay.wire.protocol import Side, StreamState


class StreamRecord(msgspec.Struct):
    """One open stream."""

    id: int
    state: StreamState
    send: SendFlow
    receive: ReceiveFlow
    opening_deadline: float | None = None  # of the peer's opening message while it isn't whole
    blocked: bool = False  # somebody waits until it may queue more


class Streams:
    """Open streams by id."""

    def __init__(self, side: Side) -> None:
        self._ours = int(side) % 2
        self._next_ours = int(side)
        self._last_peers = 0
        self._open: dict[int, StreamRecord] = {}
        self.ours = 0
        self.peers = 0
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def get(self, stream: int) -> StreamRecord | None:
        """The record of an open stream."""
        return self._open.get(stream)

    def state(self, stream: int) -> StreamState:
        """State of any id, also one that was never opened or is closed."""
        record = self._open.get(stream)
        if record is not None:
            return record.state
        if stream % 2 == self._ours:
            return StreamState.CLOSED if stream < self._next_ours else StreamState.IDLE_OURS
        return StreamState.CLOSED if stream <= self._last_peers else StreamState.IDLE_PEERS

    def open_ours(self) -> StreamRecord:
        """Open the next stream of this side."""
        record = self._add(self._next_ours, StreamState.ASKING)
        self._next_ours += 2
        self.ours += 1
        return record

    def pass_peers(self, stream: int) -> None:
        """Note that the peer used an id, opened here or refused."""
        assert stream > self._last_peers
        self._last_peers = stream

    def open_peers(self, stream: int, state: StreamState) -> StreamRecord:
        """Open a stream of the peer; `pass_peers` comes first."""
        self.peers += 1
        return self._add(stream, state)

    def close(self, record: StreamRecord) -> None:
        """Forget a stream, exactly once."""
        del self._open[record.id]
        record.state = StreamState.CLOSED
        self.held_bytes -= record.receive.held
        if record.id % 2 == self._ours:
            self.ours -= 1
        else:
            self.peers -= 1

    def clear(self) -> None:
        """Forget all streams."""
        for record in list(self._open.values()):
            self.close(record)

    def _add(self, stream: int, state: StreamState) -> StreamRecord:
        record = StreamRecord(stream, state, SendFlow(stream), ReceiveFlow())
        self._open[stream] = record
        return record
