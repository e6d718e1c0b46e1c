from __future__ import annotations

import pytest

from nearsay.wire.flow import SendFlow
from nearsay.wire.limits import (
    BUDGET_MS_MAX,
    FRAGMENT_BYTES,
    ITEM_OVERHEAD_BYTES,
    PACKET_BYTES,
    PACKET_PIECES,
    WINDOW_BYTES,
    LinkLimits,
)
from nearsay.wire.outbox import Outbox
from nearsay.wire.protocol import FINAL, MORE, Frame, ProtocolError

NOW = 10.0


def items(frames: list[list[object]]) -> list[tuple[int, int, bytes]]:
    (data,) = [frame[1] for frame in frames if frame[0] == Frame.DATA]
    assert isinstance(data, list)
    it = iter(data)
    return list(zip(it, it, it, strict=True))


def test_one_data_frame_carries_the_small_messages_of_all_streams() -> None:
    out = Outbox(LinkLimits())
    flows = [SendFlow(stream) for stream in range(2, 130, 2)]
    for flow in flows:
        out.push(flow, b"tokens")
    frames, ended, _ = out.packet(NOW)
    assert [frame[0] for frame in frames] == [Frame.DATA]
    assert items(frames) == [(flow.stream, 0, b"tokens") for flow in flows]
    assert not ended and out.empty and out.queued_bytes == 0


def test_a_huge_stream_never_slows_the_other_99() -> None:
    """The huge one gets one piece a turn; the small ones' messages all leave with its first two pieces."""
    out = Outbox(LinkLimits())
    huge = SendFlow(2)
    out.push(huge, bytes(4 << 20))
    out.packet(NOW)
    for stream in range(4, 202, 2):
        out.push(SendFlow(stream), b"small", ends=True)
    frames, ended, _ = out.packet(NOW)
    assert ended == list(range(4, 202, 2))
    assert sum(stream == 2 for stream, _, _ in items(frames)) <= 2


def test_two_long_streams_take_turns() -> None:
    out = Outbox(LinkLimits())
    for stream in (2, 4):
        out.push(SendFlow(stream), bytes(3 * FRAGMENT_BYTES), ends=True)
    order = []
    while not out.empty:
        order += [(stream, flags) for stream, flags, _ in items(out.packet(NOW)[0])]
    assert order == [(2, MORE), (4, MORE), (2, MORE), (4, MORE), (2, FINAL), (4, FINAL)]


def test_a_stream_without_credit_waits_and_holds_nobody_up() -> None:
    out = Outbox(LinkLimits())
    stalled, lively = SendFlow(2), SendFlow(4)
    stalled.credit = ITEM_OVERHEAD_BYTES + 2
    out.push(stalled, b"abcdef")
    out.push(lively, b"xyz")
    assert items(out.packet(NOW)[0]) == [(2, MORE, b"ab"), (4, 0, b"xyz")]
    assert out.empty
    out.push(lively, b"more")
    assert items(out.packet(NOW)[0]) == [(4, 0, b"more")]
    stalled.credit = WINDOW_BYTES
    out.wake(stalled)
    assert items(out.packet(NOW)[0]) == [(2, 0, b"cdef")]


def test_control_overtakes_data() -> None:
    out = Outbox(LinkLimits())
    out.push(SendFlow(2), b"data")
    out.control(Frame.CANCEL, 1)
    out.load(b"old")
    out.load(b"new")
    out.pong(1)
    out.pong(2)
    out.credit(3, 10)
    out.credit(3, 5)
    frames, _, _ = out.packet(NOW)
    assert frames == [
        [Frame.CANCEL, 1],
        [Frame.PONG, 2],
        [Frame.LOAD, b"new"],
        [Frame.CREDIT, [3, 15]],
        [Frame.DATA, [2, 0, b"data"]],
    ]


def test_the_budget_is_stamped_when_the_frame_is_written() -> None:
    out = Outbox(LinkLimits())
    for stream, deadline in ((1, NOW + 0.25), (3, NOW - 1.0), (5, float("inf")), (7, float("nan"))):
        flow = SendFlow(stream, opening_deadline=deadline)
        out.push(flow, b"m")
    frames, _, _ = out.packet(NOW + 0.05)
    assert [frame[3] for frame in frames] == [pytest.approx(200.0), 0.0, BUDGET_MS_MAX, 0.0]


def test_a_stream_opens_once_and_goes_on_as_data() -> None:
    out = Outbox(LinkLimits())
    out.push(SendFlow(1, opening_deadline=NOW), bytes(FRAGMENT_BYTES + 1))
    frames, _, _ = out.packet(NOW)
    assert frames == [[Frame.OPEN, 1, MORE, 0.0, bytes(FRAGMENT_BYTES)], [Frame.DATA, [1, 0, b"\0"]]]


def test_a_packet_is_closed_at_its_size() -> None:
    out = Outbox(LinkLimits())
    for stream in range(2, 20, 2):
        out.push(SendFlow(stream), bytes(FRAGMENT_BYTES))
    sizes = []
    while not out.empty:
        sizes.append(sum(len(piece) for _, _, piece in items(out.packet(NOW)[0])))
    assert max(sizes) <= PACKET_BYTES + FRAGMENT_BYTES
    assert sum(sizes) == 9 * FRAGMENT_BYTES


def test_a_packet_is_closed_at_its_count() -> None:
    out = Outbox(LinkLimits(control_frames_max=3 * PACKET_PIECES))
    for stream in range(PACKET_PIECES + 10):
        out.push(SendFlow(stream), b"x")
        out.control(Frame.CANCEL, stream)
        out.credit(stream, 1)
    frames, _, _ = out.packet(NOW)
    assert len(items(frames)) == PACKET_PIECES
    assert sum(frame[0] == Frame.CANCEL for frame in frames) == PACKET_PIECES
    frames, _, _ = out.packet(NOW)
    assert len(items(frames)) == 10
    assert [frame[1] for frame in frames if frame[0] == Frame.CREDIT] == [
        [n for stream in range(PACKET_PIECES, PACKET_PIECES + 10) for n in (stream, 1)]
    ]


def test_a_dropped_stream_leaves_nothing_to_write() -> None:
    out = Outbox(LinkLimits())
    flow = SendFlow(2)
    out.push(flow, b"abc")
    out.credit(2, 100)
    out.drop(flow)
    assert out.queued_bytes == 0
    assert out.packet(NOW)[0] == []
    assert out.empty


def test_a_peer_that_reads_no_control_frames_ends_the_link() -> None:
    out = Outbox(LinkLimits(control_frames_max=2))
    out.control(Frame.CANCEL, 1)
    out.control(Frame.CANCEL, 3)
    with pytest.raises(ProtocolError, match="control_overflow"):
        out.control(Frame.CANCEL, 5)
