"""Hostile peers: random bytes, and frames of the right shape in any order with any numbers in them."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.wire import events as ev
from nearsay.wire.codec import Codec
from nearsay.wire.errors import NearsayError
from nearsay.wire.limits import WINDOW_BYTES, LinkLimits
from nearsay.wire.messages import Hello, LoadReport, Tokens
from nearsay.wire.protocol import IGNORED, STREAM_TABLE, Frame, Input, LinkState, ProtocolError, Side, StreamState
from nearsay.wire.session import Session, one_of
from tests.wire.conversation import Conversation, answer, ask, packet_of

LIMITS = LinkLimits(
    streams_max=3, message_bytes_max=600, received_bytes_max=900, control_frames_max=8, array_items_max=100
)
CODEC = Codec(LIMITS)
BODIES = [CODEC.encode(m) for m in (ask(), answer(), Tokens(b"abcd"))] + [b"", b"x", b"\xc1", bytes(300)]
LINK_BODIES = [CODEC.encode(m) for m in (Hello("edge"), Hello("edge", protocol=9), LoadReport("ready"))] + [b"", b"?"]

ids = st.integers(-1, 12) | st.sampled_from([2**31, 2**63 - 1, 2**64 - 1, -(2**63)])
flags = st.sampled_from([0, 0, 0, 1, 2, 3, -1, 2**40])
bodies = st.sampled_from(BODIES)
budgets = st.sampled_from([0.0, 1000.0, -1.0, float("nan"), float("inf"), 1e300])
codes = st.sampled_from(["overloaded", "", "no such code", "x" * 300])


def pairs(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(*strategies), max_size=4).map(lambda found: [item for group in found for item in group])


frames = st.one_of(
    st.tuples(st.just(Frame.HELLO), st.sampled_from(LINK_BODIES)),
    st.tuples(st.just(Frame.OPEN), ids, flags, budgets, bodies),
    st.tuples(st.just(Frame.OPEN), st.sampled_from([1, 3, 5, 7, 9]), st.sampled_from([0, 1]), st.just(5.0), bodies),
    st.tuples(st.just(Frame.DATA), pairs(ids, flags, bodies)),
    st.tuples(st.just(Frame.DATA), pairs(st.integers(1, 9), st.sampled_from([0, 1, 2]), bodies)),
    st.tuples(st.just(Frame.CREDIT), pairs(ids, ids)),
    st.tuples(st.just(Frame.CANCEL), ids),
    st.tuples(st.just(Frame.REJECT), ids, codes, codes, budgets),
    st.tuples(st.just(Frame.GO_AWAY), codes),
    st.tuples(st.just(Frame.PING), ids),
    st.tuples(st.just(Frame.PONG), ids),
    st.tuples(st.just(Frame.LOAD), st.sampled_from(LINK_BODIES)),
)
packets = st.lists(frames, max_size=6).map(lambda found: msgpack.packb([list(frame) for frame in found]))


def attacked(side: str) -> Session:
    """One side of a link that is up, with a stream of ours open."""
    talk = Conversation(LIMITS)
    session: Session = getattr(talk, side)
    session.open(ask(), talk.now)
    session.data_to_send(talk.now)
    return session


def bounded(session: Session) -> None:
    assert len(session.streams) <= 2 * LIMITS.streams_max
    assert session.streams.held_bytes <= LIMITS.received_bytes_max
    for record in session.streams._open.values():
        assert record.receive.held <= 2 * WINDOW_BYTES + 2 * LIMITS.message_bytes_max
    assert len(session._out._control) <= LIMITS.control_frames_max
    assert len(session._out._credits) <= 2 * LIMITS.streams_max


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["left", "right"]), st.lists(packets | st.binary(max_size=60), max_size=8))
def test_nothing_but_protocol_errors(side: str, stream: list[bytes]) -> None:
    session = attacked(side)
    for packet in stream:
        try:
            for event in session.receive(packet, 100.0):
                if isinstance(event, ev.Opened):
                    session.reject(event.stream, NearsayError())
            bounded(session)
            session.tick(100.0)
            session.data_to_send(100.0)
        except ProtocolError:
            assert session.state is LinkState.CLOSED
            assert not session.streams and session.streams.held_bytes == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(packets | st.binary(max_size=60), max_size=6))
def test_nothing_but_protocol_errors_before_the_greeting(stream: list[bytes]) -> None:
    session = Session(Side.ACCEPT, Hello("edge", secret="own"), LIMITS, now=100.0, authorise=one_of(("s",)))
    for packet in stream:
        try:
            assert session.receive(packet, 100.0) == []
        except ProtocolError:
            assert session.state is LinkState.CLOSED
        assert session.data_to_send(100.0) == b"", "not a byte to who hasn't shown the secret"


def frame_for(given: Input, stream: int) -> list[Any]:
    """A well-formed frame that is the given input to a stream."""
    body = CODEC.encode(Tokens(b"abcd"))
    return {
        Input.OPEN: [Frame.OPEN, stream, 0, 1.0, body],
        Input.OPEN_PART: [Frame.OPEN, stream, 1, 1.0, body[:3]],
        Input.DATA: [Frame.DATA, [stream, 0, body]],
        Input.DATA_PART: [Frame.DATA, [stream, 1, body[:3]]],
        Input.FINAL: [Frame.DATA, [stream, 2, body]],
        Input.CREDIT: [Frame.CREDIT, [stream, 10]],
        Input.CANCEL: [Frame.CANCEL, stream],
        Input.REJECT: [Frame.REJECT, stream, "overloaded", "", -1.0],
    }[given]


def in_state(state: StreamState) -> tuple[Session, int]:
    """The accepting side of a link, and an id that is in the given state there."""
    talk = Conversation(LIMITS)
    match state:
        case StreamState.IDLE_PEERS:
            return talk.right, 1
        case StreamState.IDLE_OURS:
            return talk.right, 2
        case StreamState.OPENING:
            body = CODEC.encode(Tokens(b"abcd"))
            talk.right.receive(packet_of([Frame.OPEN, 1, 1, 1.0, body[:4]]), talk.now)
            return talk.right, 1
        case StreamState.ANSWERING:
            return talk.right, talk.opened()
        case StreamState.ASKING:
            return talk.right, talk.right.open(ask(), talk.now)
        case StreamState.CLOSED:
            stream = talk.opened()
            talk.right.reject(stream, NearsayError())
            return talk.right, stream


def test_every_state_with_every_input_does_what_the_table_says() -> None:
    """The live session against the table: the state after each input, or the table's error, and nothing else."""
    for (state, given_input), entry in STREAM_TABLE.items():
        session, stream = in_state(state)
        assert session.streams.state(stream) is state
        packet = packet_of(frame_for(given_input, stream))
        if isinstance(entry, StreamState):
            if (state, given_input) == (StreamState.OPENING, Input.DATA):
                packet = packet_of([Frame.DATA, [stream, 0, CODEC.encode(Tokens(b"abcd"))[4:]]])
            session.receive(packet, 100.0)
            assert session.streams.state(stream) is entry
        elif entry == IGNORED:
            assert session.receive(packet, 100.0) == []
            assert session.streams.state(stream) is state
        else:
            with pytest.raises(ProtocolError) as caught:
                session.receive(packet, 100.0)
            assert caught.value.code == entry, (state, given_input)
