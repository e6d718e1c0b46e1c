from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.word_spans import word_pairs
from nearsay.wire.messages import WordPair


def test_pieces_become_words_wherever_their_spaces_are() -> None:
    pairs = word_pairs(
        "Good\n  morning!",
        ["▁Good", "▁mor", "ning", "!"],
        "Guten Morgen!",
        ["▁Gut", "en", "▁Morgen", "!"],
        [0, 0, 2, 3],
    )
    assert pairs == (WordPair(0, 4, 0, 5), WordPair(7, 15, 6, 13))


def test_a_word_from_two_and_a_word_that_moved() -> None:
    pairs = word_pairs("a b c", ["▁a", "▁b", "▁c"], "CB A", ["▁C", "B", "▁A"], [2, 1, 0])
    assert pairs == (WordPair(4, 5, 0, 2), WordPair(2, 3, 0, 2), WordPair(0, 1, 3, 4))


def test_no_answer_rather_than_a_wrong_one() -> None:
    good = ("a b", ["▁a", "▁b"], "A B", ["▁A", "▁B"], [0, 1])
    assert len(word_pairs(*good)) == 2
    assert word_pairs("a b c", *good[1:]) == ()  # words that the pieces don't have
    assert word_pairs(*good[:3], ["▁A", "▁B", "▁C"], [0, 1, 1]) == ()
    assert word_pairs(*good[:4], [0]) == ()
    assert word_pairs("", [], "", [], []) == ()
    assert word_pairs(*good[:4], [0, 7]) == (WordPair(0, 1, 0, 1),)  # past the source: the end that was attended to


WORDS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=6)


@given(WORDS, WORDS, st.data())
def test_every_span_is_a_word_of_its_text(source: list[str], target: list[str], data: st.DataObject) -> None:
    def pieces(words: list[str]) -> list[str]:
        return [mark + char for word in words for mark, char in zip("▁" + " " * 9, word, strict=False)]

    cut = [[piece.strip() for piece in pieces(words)] for words in (source, target)]
    alignment = [data.draw(st.integers(0, len(cut[0]) - 1)) for _ in cut[1]]
    texts = [" ".join(source), "  ".join(target)]
    found = word_pairs(texts[0], cut[0], texts[1], cut[1], alignment)
    assert len({pair.target_start for pair in found}) == len(target)
    for pair in found:
        assert texts[0][pair.start : pair.end] in source and texts[1][pair.target_start : pair.target_end] in target
