"""Growing segments: which they are, what they lean on, which words are held back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.join import Piece
from edge_worker.core.segmenter import Segment, segment, split_long
from edge_worker.core.stability import bias_of, masked
from nearsay.wire.messages import Decoding, Stability, Translate, WordPair

GROWING, DONE = Segment(0, 1, "x", "", growing=True), Segment(0, 1, "x", "")


def request(**fields: Any) -> Translate:
    return Translate("r", ("x",), "en", "de", **fields)


@pytest.mark.parametrize(
    ("text", "growing"),
    [
        ("I think", [True]),
        ("I think so.", [False]),
        ('He said: "No!"', [False]),
        ("One. Two", [False, True]),
        ("A title\n\nOne. Two.\n", [False, False, False]),
        ("A title\n\nand more \n", [False, True]),
        ("", []),
    ],
)
def test_only_a_last_sentence_without_an_end_grows(text: str, growing: list[bool]) -> None:
    assert [each.growing for each in segment(text, "en").segments] == growing


def test_of_a_split_segment_the_last_part_grows() -> None:
    (whole,) = segment("one two three, four five six", "en").segments
    parts = split_long(whole, str.split, 3)
    assert len(parts) >= 2 and [part.growing for part in parts] == [False] * (len(parts) - 1) + [True]


@pytest.mark.parametrize(
    ("fields", "bias"),
    [
        ({}, 0.0),  # nothing to lean on
        ({"session": "s"}, 0.2),
        ({"session": "s", "stability": Stability(mask=2)}, 0.2),
        ({"session": "s", "stability": Stability(0.0)}, 0.0),
        ({"session": "s", "stability": Stability(0.7)}, 0.7),
        ({"session": "s", "decoding": Decoding(beam=4)}, 0.0),
        ({"session": "s", "decoding": Decoding(alternatives=1)}, 0.0),
        ({"session": "s", "decoding": Decoding(alignment=True)}, 0.2),
    ],
)
def test_the_bias(fields: dict[str, Any], bias: float) -> None:
    assert bias_of(request(**fields), GROWING, 0.2) == bias
    assert bias_of(request(**fields), DONE, 0.2) == 0.0


def test_words_are_held_back_of_a_growing_segment_only() -> None:
    asked = request(stability=Stability(mask=2))
    piece = Piece("ein  kleiner Hund läuft", alignment=(WordPair(0, 1, 0, 3), WordPair(2, 3, 13, 17)))
    found = masked(asked, GROWING, piece)
    assert (found.text, found.masked, found.alignment) == ("ein  kleiner", 2, (WordPair(0, 1, 0, 3),))
    assert masked(asked, DONE, piece) == piece == masked(request(), GROWING, piece)
    assert (masked(asked, GROWING, Piece("ja")).text, masked(asked, GROWING, Piece("ja")).masked) == ("", 1)


@given(st.text(max_size=40), st.text(max_size=20), st.integers(1, 4))
def test_masked_text_that_grows_still_only_grows(text: str, more: str, words: int) -> None:
    asked = request(stability=Stability(mask=words))
    before, after = masked(asked, GROWING, Piece(text)), masked(asked, GROWING, Piece(text + more))
    assert after.text.startswith(before.text) and text.startswith(before.text)
