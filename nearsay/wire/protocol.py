"""The link's state tables: which frame is legal when, and the name of the mistake where it is not.

Decides: nothing but legality. Session performs what the tables allow.
Must not know: bytes, messages, credit, time.
Invariants: every (state, frame) pair has exactly one entry; an entry is the next state, IGNORED or an error code.
A stream is opened by one side with one message; the other side answers with any number of messages and ends the stream
with FINAL or REJECT; the opener ends it early with CANCEL. Frames that crossed such an end on the wire are ignored.
Ids of the connecting side are odd, of the accepting side even, and only rise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ProtocolError(Exception):
    """The peer broke the protocol (or fell silent). The link is finished; other links are not touched.

    `code` is stable: a name from the tables below, or one of malformed_packet, malformed_message, packet_too_big,
    too_many_frames, message_too_big, credit_exceeded, control_overflow, protocol_version, unauthorised, hello_timeout,
    ping_timeout.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}" if detail else code)


class Side(IntEnum):
    """Who made the connection. The value is the side's first stream id."""

    CONNECT = 1
    ACCEPT = 2


class Frame(IntEnum):
    """First item of every frame on the wire."""

    HELLO = 0
    OPEN = 1  # stream, flags, budget_ms, piece
    DATA = 2  # [stream, flags, piece, stream, flags, piece, ...]
    CREDIT = 3  # [stream, bytes, stream, bytes, ...]
    CANCEL = 4  # stream
    REJECT = 5  # stream, code, detail, retry_after_ms (-1 = none)
    GO_AWAY = 6  # reason
    PING = 7  # number
    PONG = 8  # number
    LOAD = 9  # load report


MORE = 1  # flag: the message goes on in the stream's next piece
FINAL = 2  # flag: last piece of the last message


class LinkState(IntEnum):
    """GREETING until the peer's hello, UP while it may speak, CLOSED for good."""

    GREETING = 0
    UP = 1
    CLOSED = 2


class StreamState(IntEnum):
    """A stream as this side sees it."""

    IDLE_PEERS = 0  # the peer may open it
    IDLE_OURS = 1  # we may open it
    OPENING = 2  # pieces of the peer's opening message have come
    ANSWERING = 3  # opened by the peer, we answer
    ASKING = 4  # opened by us, the peer answers
    CLOSED = 5


class Input(IntEnum):
    """What a frame means to one stream."""

    OPEN = 0
    OPEN_PART = 1
    DATA = 2
    DATA_PART = 3
    FINAL = 4
    CREDIT = 5
    CANCEL = 6
    REJECT = 7


IGNORED: Final = "ignored"
_S, _I, _F, _L = StreamState, Input, Frame, LinkState

STREAM_TABLE: dict[tuple[StreamState, Input], StreamState | str] = {
    # One line per state says what every input is unless a later line says otherwise.
    **{(_S.IDLE_PEERS, given): "stream_not_open" for given in _I},
    (_S.IDLE_PEERS, _I.OPEN): _S.ANSWERING,
    (_S.IDLE_PEERS, _I.OPEN_PART): _S.OPENING,
    **{(_S.IDLE_OURS, given): "stream_not_open" for given in _I},
    (_S.IDLE_OURS, _I.OPEN): "wrong_side",
    (_S.IDLE_OURS, _I.OPEN_PART): "wrong_side",
    **{(_S.OPENING, given): "frame_before_opening_message" for given in _I},
    (_S.OPENING, _I.OPEN): "stream_reused",
    (_S.OPENING, _I.OPEN_PART): "stream_reused",
    (_S.OPENING, _I.DATA_PART): _S.OPENING,
    (_S.OPENING, _I.DATA): _S.ANSWERING,
    (_S.OPENING, _I.CANCEL): _S.CLOSED,
    **{(_S.ANSWERING, given): _S.ANSWERING for given in _I},
    (_S.ANSWERING, _I.OPEN): "stream_reused",
    (_S.ANSWERING, _I.OPEN_PART): "stream_reused",
    (_S.ANSWERING, _I.FINAL): "end_from_opener",
    (_S.ANSWERING, _I.REJECT): "end_from_opener",
    (_S.ANSWERING, _I.CANCEL): _S.CLOSED,
    **{(_S.ASKING, given): _S.ASKING for given in _I},
    (_S.ASKING, _I.OPEN): "wrong_side",
    (_S.ASKING, _I.OPEN_PART): "wrong_side",
    (_S.ASKING, _I.CANCEL): "cancel_from_answerer",
    (_S.ASKING, _I.FINAL): _S.CLOSED,
    (_S.ASKING, _I.REJECT): _S.CLOSED,
    **{(_S.CLOSED, given): IGNORED for given in _I},
    (_S.CLOSED, _I.OPEN): "stream_reused",
    (_S.CLOSED, _I.OPEN_PART): "stream_reused",
}

LINK_TABLE: dict[tuple[LinkState, Frame], LinkState | str] = {
    **{(_L.GREETING, frame): "hello_first" for frame in _F},
    **{(_L.UP, frame): _L.UP for frame in _F},
    **{(_L.CLOSED, frame): IGNORED for frame in _F},
    (_L.GREETING, _F.HELLO): _L.UP,
    (_L.UP, _F.HELLO): "second_hello",
}


# The same by index: hashing a pair of enums would cost more than all else in a step.
_STREAM_STEPS = tuple(tuple(STREAM_TABLE[state, given] for given in Input) for state in StreamState)


def stream_step(state: StreamState, given: Input) -> StreamState | None:
    """Next state of a stream, None when the frame is to be ignored. Raises ProtocolError with the table's code."""
    step = _STREAM_STEPS[state][given]
    if isinstance(step, StreamState):
        return step
    if step is IGNORED:
        return None
    raise ProtocolError(step, f"{given.name} in {state.name}")


def link_step(state: LinkState, frame: Frame) -> LinkState | None:
    """Next state of the link, None when the frame is to be ignored. Raises ProtocolError with the table's code."""
    step = LINK_TABLE[state, frame]
    if isinstance(step, LinkState):
        return step
    if step is IGNORED:
        return None
    raise ProtocolError(step, f"{frame.name} in {state.name}")
