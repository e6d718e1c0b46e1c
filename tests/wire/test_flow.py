from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.flow import ReceiveFlow, SendFlow
from nearsay.wire.limits import FRAGMENT_BYTES, ITEM_OVERHEAD_BYTES, WINDOW_BYTES
from nearsay.wire.protocol import FINAL, MORE, ProtocolError

BIG = 1 << 30


@given(st.lists(st.integers(1, 3 * WINDOW_BYTES), min_size=1, max_size=6), st.integers(0, 5))
def test_what_is_cut_comes_together_again(sizes: list[int], read_lag: int) -> None:
    """A sender, a reader that falls behind by `read_lag` messages: all arrives, in order, within the bounds."""
    send, receive = SendFlow(1), ReceiveFlow()
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    for i, body in enumerate(bodies):
        send.push(body, ends=i == len(bodies) - 1)
    got: list[bytes] = []
    unread: list[int] = []
    while send.bodies:
        if not send.sendable:  # out of credit: only reading helps
            assert unread, "the window alone never blocks a stream whose reader reads"
            receive.unread -= unread.pop(0)
        else:
            flags, piece = send.take()
            assert len(piece) <= FRAGMENT_BYTES
            if (whole := receive.add(piece, flags == MORE, BIG)) is not None:
                got.append(whole[0])
                unread.append(whole[1])
            assert receive.received <= receive.granted
            assert (flags == FINAL) == (len(got) == len(bodies))
            if len(unread) > read_lag:
                receive.unread -= unread.pop(0)
        send.credit += receive.grant()
        assert receive.unread <= WINDOW_BYTES + max(sizes) * (1 + ITEM_OVERHEAD_BYTES)
    assert got == bodies
    assert send.queued_bytes == 0


def test_a_reader_that_does_not_read_stops_the_sender_at_the_window() -> None:
    send, receive = SendFlow(1), ReceiveFlow()
    for _ in range(100):
        send.push(bytes(10_000))
    while send.sendable:
        flags, piece = send.take()
        receive.add(piece, flags == MORE, BIG)
        assert receive.grant() == 0 or receive.partial is not None
    assert receive.held <= WINDOW_BYTES
    assert receive.held > WINDOW_BYTES - 10_000 - 3 * ITEM_OVERHEAD_BYTES


def test_a_message_longer_than_the_window_gets_through_unread() -> None:
    send, receive = SendFlow(1), ReceiveFlow()
    send.push(bytes(5 * WINDOW_BYTES))
    whole = None
    while whole is None:
        flags, piece = send.take()
        whole = receive.add(piece, flags == MORE, BIG)
        send.credit += receive.grant()
    assert len(whole[0]) == 5 * WINDOW_BYTES
    assert receive.held == whole[1]
    assert receive.grant() == 0, "no more credit until it is read"
    receive.unread -= whole[1]
    assert receive.grant() >= WINDOW_BYTES // 2


def test_more_than_was_granted_is_a_protocol_error() -> None:
    receive = ReceiveFlow()
    with pytest.raises(ProtocolError, match="credit_exceeded"):
        for _ in range(WINDOW_BYTES // FRAGMENT_BYTES):
            receive.add(bytes(FRAGMENT_BYTES), False, BIG)
    assert receive.held <= WINDOW_BYTES


def test_tiny_messages_cost_their_overhead() -> None:
    receive = ReceiveFlow()
    with pytest.raises(ProtocolError, match="credit_exceeded"):
        for _ in range(WINDOW_BYTES // ITEM_OVERHEAD_BYTES):
            receive.add(b"x", False, BIG)


@pytest.mark.parametrize("size", [0, FRAGMENT_BYTES + 1])
@pytest.mark.parametrize("more", [False, True])
def test_a_piece_has_bytes_but_not_too_many(size: int, more: bool) -> None:
    with pytest.raises(ProtocolError, match="malformed_packet"):
        ReceiveFlow().add(bytes(size), more, BIG)


def test_the_message_limit_holds_for_the_sum_of_pieces() -> None:
    receive = ReceiveFlow()
    with pytest.raises(ProtocolError, match="message_too_big"):
        receive.add(bytes(1001), False, 1000)
    assert receive.add(bytes(600), True, 1000) is None
    assert receive.add(bytes(400), True, 1000) is None
    with pytest.raises(ProtocolError, match="message_too_big"):
        receive.add(b"x", False, 1000)


def test_dropping_forgets_what_is_queued() -> None:
    send = SendFlow(1)
    send.push(b"abc")
    send.push(b"de")
    assert send.drop() == 5
    assert not send.sendable and send.queued_bytes == 0


def test_nothing_follows_the_final_message() -> None:
    send = SendFlow(1)
    send.push(b"abc", ends=True)
    with pytest.raises(AssertionError):
        send.push(b"d")
