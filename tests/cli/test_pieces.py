from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.cli.pieces import ReadyPrefix, pieces
from nearsay.client import SegmentDone
from nearsay.wire.errors import InternalError

TEXT = st.text(st.sampled_from("ab .\n\r\t🙂"), max_size=200)


@given(text=TEXT, chars_max=st.integers(1, 50))
def test_pieces_are_short_and_make_up_the_text(text: str, chars_max: int) -> None:
    found = list(pieces(text, chars_max))
    assert "".join(found) == text
    assert all(0 < len(piece) <= chars_max for piece in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("short", ["short"]),
        ("one.\n\ntwo.\nthree", ["one.\n\n", "two.\nthree"]),
        ("one.\ntwo.\nthree.\n", ["one.\ntwo.\n", "three.\n"]),
        ("one two three four", ["one two ", "three four"]),
        ("onetwothreefour", ["onetwothreef", "our"]),
    ],
)
def test_cut_where_it_hurts_least(text: str, expected: list[str]) -> None:
    assert list(pieces(text, 12)) == expected


SEGMENTS = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=5)), max_size=8)


@given(segments=SEGMENTS, tail=st.text(max_size=3), data=st.data())
def test_segments_in_any_order_come_out_in_theirs(
    segments: list[tuple[str, str]], tail: str, data: st.DataObject
) -> None:
    whole = "".join(gap + text for gap, text in segments) + tail
    order = data.draw(st.permutations(range(len(segments))))
    ready, shown = ReadyPrefix(), ""
    for n, index in enumerate(order, start=1):
        gap, text = segments[index]
        shown += ready.add(SegmentDone(item=0, segment=index, revision=0, text=text, gap=gap))
        known = next((i for i in range(len(segments)) if i not in order[:n]), len(segments))
        assert shown == "".join(gap + text for gap, text in segments[:known])
    assert shown + ready.finish(whole) == whole


def done(segment: int, text: str) -> SegmentDone:
    return SegmentDone(item=0, segment=segment, revision=0, text=text)


def test_after_a_restart_what_was_shown_must_be_the_answers_start() -> None:
    ready = ReadyPrefix()
    ready.add(done(1, "b"))
    ready.restart()  # nothing was shown
    assert ready.add(done(0, "x")) == "x"
    ready.restart()
    assert ready.add(done(0, "x")) == "" == ready.add(done(1, "y"))
    assert ready.finish("xyz") == "yz"
    with pytest.raises(InternalError):
        ready.finish("abc")


def test_an_answer_that_differs_from_what_was_shown() -> None:
    ready = ReadyPrefix()
    ready.add(SegmentDone(item=0, segment=0, revision=0, text="Hallo"))
    with pytest.raises(InternalError):
        ready.finish("Guten Tag")
