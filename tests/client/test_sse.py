from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.client.sse import EventParser, ServerEvent
from nearsay.wire.errors import InternalError


def parsed(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: x\n\n", [("message", "x")]),
        (b"event: done\ndata: {}\n\n", [("done", "{}")]),
        (b"event:done\r\ndata:a\r\ndata: b\r\n\r\n", [("done", "a\nb")]),
        (b"data: a\r\rdata: b\r\r", [("message", "a")]),  # a closing CR waits: it may be half of a CRLF
        (b": heartbeat\n\ndata: x\n\n", [("message", "x")]),
        (b"event: empty\n\ndata: x\n\n", [("message", "x")]),
        (b"data\n\n", [("message", "")]),
        (b"data:  two\n\n", [("message", " two")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("message", "x")]),
        (b"id: 3\nretry: 10\nunknown: y\ndata: x\n\n", [("message", "x")]),
        (b"data: x\n", []),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
    ],
)
def test_events(data: bytes, events: list[tuple[str, str]]) -> None:
    assert parsed(data) == events


FIELD = st.sampled_from([b"event: done", b"data: x", b"data:", b": c", b"", b"data: \xc3\xa9", b"id: 1"])


@given(
    lines=st.lists(st.tuples(FIELD, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=20),
    cuts=st.lists(st.integers(0, 300), max_size=10),
)
def test_cutting_the_bytes_changes_nothing(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = b"".join(part for line in lines for part in line) + b"\n"
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert parsed(*pieces) == parsed(data)


def test_an_event_is_bounded() -> None:
    for endless in (b"data: " + b"x" * 200, b"data: xxxxxxxx\n" * 20):
        parser = EventParser(event_bytes_max=100)
        with pytest.raises(InternalError):
            parser.feed(endless)


def test_the_bound_is_for_one_event_not_for_all() -> None:
    parser = EventParser(event_bytes_max=100)
    assert len([event for _ in range(50) for event in parser.feed(b"data: xxxxxxxx\n\n")]) == 50
