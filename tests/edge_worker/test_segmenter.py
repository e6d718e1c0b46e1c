from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.segmenter import SEGMENT_CHARACTERS_MAX, Segment, Segmented, segment, split_long

ODD = "ab Z.!?…。\n\r\t\u2028\0\u200d\u200f\u0301😀-*>#1234567890\"')”«.. "
texts = st.text() | st.text(alphabet=ODD, max_size=200)
languages = st.sampled_from(["en", "de", "pt", "zh", "xx"])


def rejoined(cut: Segmented) -> str:
    return "".join(s.gap + s.text for s in cut.segments) + cut.tail


def cut(text: str, language: str = "en") -> list[str]:
    segmented = segment(text, language)
    assert rejoined(segmented) == text
    return [s.text for s in segmented.segments]


@given(texts, languages)
def test_any_text_is_whole_again(text: str, language: str) -> None:
    segmented = segment(text, language)
    assert rejoined(segmented) == text
    for one in segmented.segments:
        assert text[one.start : one.end] == one.text
        assert one.text == one.text.strip() != ""
        assert len(one.text) <= SEGMENT_CHARACTERS_MAX


@given(st.text(alphabet="ab.! \n", max_size=60), languages)
def test_gaps_hold_no_word(text: str, language: str) -> None:
    segmented = segment(text, language)
    assert not any(char.isalpha() for one in segmented.segments for char in one.gap)
    assert not any(char.isalpha() for char in segmented.tail)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met Mr. Jones at St. Mary. He left.", ["Dr. Smith met Mr. Jones at St. Mary.", "He left."]),
        ("J. R. R. Tolkien wrote it. I read it.", ["J. R. R. Tolkien wrote it.", "I read it."]),
        ("It costs 3.50 euros, e.g. at noon. Yes.", ["It costs 3.50 euros, e.g. at noon.", "Yes."]),
        ("Built in 1987. It stands.", ["Built in 1987.", "It stands."]),
        ("He lives in the U.S. and likes it.", ["He lives in the U.S. and likes it."]),
        ("He lives in the U.S. It is big.", ["He lives in the U.S.", "It is big."]),
        ("The U.S. Army came.", ["The U.S. Army came."]),
        ("“Really?” he asked. “Yes!”", ["“Really?” he asked.", "“Yes!”"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Well... perhaps. Wait... No.", ["Well... perhaps.", "Wait...", "No."]),
        ("See https://a.example/x.html?q=1.2 and mail me@a.example. Bye.",
         ["See https://a.example/x.html?q=1.2 and mail me@a.example.", "Bye."]),
        ("what? no way!! ok", ["what?", "no way!!", "ok"]),
        ("He said no. Then he took No. 5.", ["He said no.", "Then he took No. 5."]),
        ("So do I. He moved. Ask John Ph.D. Smith.", ["So do I.", "He moved.", "Ask John Ph.D. Smith."]),
        ("(It was late.) We went.", ["(It was late.)", "We went."]),
    ],
)  # fmt: skip
def test_english(text: str, segments: list[str]) -> None:
    assert cut(text) == segments


@pytest.mark.parametrize(
    ("text", "language", "segments"),
    [
        ("Am 3. Mai kam er. Es war kalt.", "de", ["Am 3. Mai kam er.", "Es war kalt."]),
        ("Obst, z. B. Äpfel, usw. Gut.", "de", ["Obst, z. B. Äpfel, usw.", "Gut."]),
        ("Hr. Meier wohnt Hauptstr. 5. Das war 1990. Ja.", "de", ["Hr. Meier wohnt Hauptstr. 5. Das war 1990.", "Ja."]),
        ("Der Dipl.-Ing. Schmidt kam. Gut.", "de", ["Der Dipl.-Ing. Schmidt kam.", "Gut."]),
        ("O Sr. Silva chegou. A Dra. Ana saiu.", "pt", ["O Sr. Silva chegou.", "A Dra. Ana saiu."]),
        ("你好。今天天气很好！是吗？", "zh", ["你好。", "今天天气很好！", "是吗？"]),
        ("كيف حالك؟ أنا بخير.", "ar", ["كيف حالك؟", "أنا بخير."]),
        ("यह एक वाक्य है। यह दूसरा है।", "hi", ["यह एक वाक्य है।", "यह दूसरा है।"]),
    ],
)
def test_other_languages(text: str, language: str, segments: list[str]) -> None:
    assert cut(text, language) == segments


def test_lines_end_segments_and_marks_stay_in_the_gap() -> None:
    text = "# Shopping\n\n- Milk and eggs\n- Bread\n1. First. Second\n> Quoted\n"
    segmented = segment(text, "en")
    assert [(s.gap, s.text) for s in segmented.segments] == [
        ("# ", "Shopping"),
        ("\n\n- ", "Milk and eggs"),
        ("\n- ", "Bread"),
        ("\n1. ", "First."),
        (" ", "Second"),
        ("\n> ", "Quoted"),
    ]
    assert segmented.tail == "\n"


def test_a_line_of_marks_alone_is_a_segment() -> None:
    assert cut("One\n---\nTwo\n***\n") == ["One", "---", "Two", "***"]


def test_wrapped_prose_is_read_on() -> None:
    text = (
        "Alice was beginning to get very tired of sitting by her\n"
        "sister on the bank, and of having nothing to do. Once or\n"
        "twice she had peeped into the book.\n\nThe end\n"
    )
    segmented = segment(text, "en")
    assert [s.text.replace("\n", "|") for s in segmented.segments] == [
        "Alice was beginning to get very tired of sitting by her|sister on the bank, and of having nothing to do.",
        "Once or|twice she had peeped into the book.",
        "The end",
    ]
    assert "\n" not in segmented.segments[0].plain and "her sister" in segmented.segments[0].plain


def test_chat_lines_are_not_read_on() -> None:
    text = "Same link: https://meet.example.org/r/9f3-kq2?lang=en#now\nok see you then\nthx!!\nI am late\n"
    assert len(cut(text)) == 4


def test_windows_line_ends_are_one_newline() -> None:
    wrapped = "This line is long enough to have been wrapped by a program,\r\nand so it goes on here until it ends.\r\n"
    assert len(cut(wrapped)) == 1
    assert cut("One\r\n\r\nTwo\r\n") == ["One", "Two"]


def steps(text: str) -> int:
    """Line events of our code while it cuts a text: time without a clock."""
    count = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        segment(text, "en")
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("unit", ["x", ".", "\n", ". ", "a.", "- ", "a\n", "Dr. ", '"'])
def test_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    assert steps(unit * 8_000) <= 4.5 * steps(unit * 2_000) + 400


def test_a_megabyte_of_one_word_is_cut_at_the_bound() -> None:
    segments = cut("x" * 1_000_000)
    assert max(map(len, segments)) == SEGMENT_CHARACTERS_MAX
    assert "".join(segments) == "x" * 1_000_000


def test_a_cut_anywhere_keeps_marks_with_their_letters() -> None:
    for whole in ("e\u0301", "👩\u200d🚀"):
        for piece in cut(whole * 2_000):
            assert piece[0] == whole[0], repr(piece[:4])


def one_token_each(text: str) -> Sequence[int]:
    return range(len(text))


def words(text: str) -> Sequence[int]:
    return range(len(text.split()))


@given(texts, st.integers(1, 40))
def test_parts_are_whole_again_and_small_enough(text: str, tokens_max: int) -> None:
    for whole in segment(text, "en").segments:
        parts = split_long(whole, one_token_each, tokens_max)
        assert parts[0].gap == whole.gap
        assert parts[0].text + "".join(p.gap + p.text for p in parts[1:]) == whole.text
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(len(p.plain) <= tokens_max for p in parts if len(p.text) > 1)


def test_parts_are_cut_at_clauses_then_spaces() -> None:
    text = "we went to the house on the hill, and there we saw the garden of the old man"
    whole = Segment(0, len(text), text, "")
    assert [p.text for p in split_long(whole, words, 10)] == [text[:33], text[34:]]
    assert [len(p.text.split()) for p in split_long(Segment(0, 23, "a b c d e f g h i j k l", ""), words, 7)] == [5, 7]


def test_what_is_short_enough_is_left_alone() -> None:
    whole = Segment(5, 8, "a b", " ")
    assert split_long(whole, words, 2) == [whole]


def test_encode_is_called_a_bounded_number_of_times() -> None:
    calls = 0

    def encode(text: str) -> Sequence[int]:
        nonlocal calls
        calls += 1
        return range(len(text))

    text = "x" * 1_024
    parts = split_long(Segment(0, len(text), text, ""), encode, 64)
    assert len(parts) == 16
    assert calls == 31  # each part once, each cut once
