from __future__ import annotations

import itertools

import pytest

from nearsay.wire.protocol import (
    IGNORED,
    LINK_TABLE,
    STREAM_TABLE,
    Frame,
    Input,
    LinkState,
    ProtocolError,
    StreamState,
    link_step,
    stream_step,
)


def test_the_tables_are_complete() -> None:
    assert set(STREAM_TABLE) == set(itertools.product(StreamState, Input))
    assert set(LINK_TABLE) == set(itertools.product(LinkState, Frame))


@pytest.mark.parametrize(("state", "given"), STREAM_TABLE)
def test_a_stream_step_is_what_the_table_says(state: StreamState, given: Input) -> None:
    entry = STREAM_TABLE[state, given]
    if isinstance(entry, StreamState):
        assert stream_step(state, given) is entry
    elif entry == IGNORED:
        assert stream_step(state, given) is None
    else:
        with pytest.raises(ProtocolError) as caught:
            stream_step(state, given)
        assert caught.value.code == entry


@pytest.mark.parametrize(("state", "frame"), LINK_TABLE)
def test_a_link_step_is_what_the_table_says(state: LinkState, frame: Frame) -> None:
    entry = LINK_TABLE[state, frame]
    if isinstance(entry, LinkState):
        assert link_step(state, frame) is entry
    elif entry == IGNORED:
        assert link_step(state, frame) is None
    else:
        with pytest.raises(ProtocolError) as caught:
            link_step(state, frame)
        assert caught.value.code == entry


def test_a_closed_stream_never_comes_back() -> None:
    assert not any(isinstance(STREAM_TABLE[StreamState.CLOSED, given], StreamState) for given in Input)


def test_only_the_side_that_answers_ends_a_stream_with_an_answer() -> None:
    ends = {state for (state, given), to in STREAM_TABLE.items() if given is Input.FINAL and to is StreamState.CLOSED}
    assert ends == {StreamState.ASKING}


def test_hello_comes_first_and_once() -> None:
    assert {frame for frame in Frame if LINK_TABLE[LinkState.GREETING, frame] is LinkState.UP} == {Frame.HELLO}
    assert LINK_TABLE[LinkState.UP, Frame.HELLO] == "second_hello"


def test_an_error_shows_its_code_and_detail() -> None:
    assert str(ProtocolError("ping_timeout")) == "ping_timeout"
    assert str(ProtocolError("wrong_side", "stream 4")) == "wrong_side: stream 4"
