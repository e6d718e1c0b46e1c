from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.join import Join, Piece
from edge_worker.core.segmenter import Segment, Segmented
from nearsay.wire.messages import Update, WordPair


def source(*texts: str, gap: str = " ", tail: str = "\n") -> Segmented:
    segments, at = [], 0
    for number, text in enumerate(texts):
        before = gap if number else ""
        segments.append(Segment(at + len(before), at + len(before) + len(text), text, before))
        at += len(before) + len(text)
    return Segmented(tuple(segments), tail)


def shown(updates: list[Update]) -> list[tuple[int, int, str, str]]:
    return [(u.segment, u.revision, u.kind, u.text) for u in updates]


def test_a_later_segment_waits_for_the_ones_before() -> None:
    join = Join(3, source("a", "b", "c"))
    assert join.add(2, Piece("C")) == []
    assert join.add(1, Piece("B")) == []
    updates = join.add(0, Piece("A", model="m@1"))
    assert shown(updates) == [(0, 0, "segment", "A"), (1, 0, "segment", "B"), (2, 0, "segment", "C")]
    assert (updates[0].item, updates[0].model, updates[1].gap, updates[1].start, updates[1].end) == (
        3,
        "m@1",
        " ",
        2,
        3,
    )
    assert join.done and join.text() == "A B C\n"


def test_partial_text_is_shown_of_the_first_unfinished_segment_only() -> None:
    join = Join(0, source("a", "b"))
    assert shown(join.add(0, Piece("A", "partial"))) == [(0, 0, "partial", "A")]
    assert join.add(1, Piece("B", "partial")) == []
    assert join.add(1, Piece("Bb", "partial")) == []
    assert shown(join.add(0, Piece("Aa"))) == [(0, 1, "segment", "Aa"), (1, 0, "partial", "Bb")]
    assert shown(join.add(1, Piece("Bbb"))) == [(1, 1, "segment", "Bbb")]


def test_drafts_open_the_way_and_are_revised_in_any_order() -> None:
    join = Join(0, source("a", "b"))
    assert shown(join.add(0, Piece("A?", "draft"))) == [(0, 0, "draft", "A?")]
    assert shown(join.add(1, Piece("B?", "draft"))) == [(1, 0, "draft", "B?")]
    assert shown(join.add(1, Piece("B!"))) == [(1, 1, "segment", "B!")]
    assert not join.done
    assert shown(join.add(0, Piece("A!"))) == [(0, 1, "segment", "A!")]
    assert join.text() == "A! B!\n"


def test_a_draft_that_never_was_shown_is_skipped() -> None:
    join = Join(0, source("a", "b"))
    assert join.add(1, Piece("B?", "draft")) == []
    assert join.add(1, Piece("B!")) == []
    assert shown(join.add(0, Piece("A"))) == [(0, 0, "segment", "A"), (1, 0, "segment", "B!")]


def test_a_final_segment_never_changes() -> None:
    join = Join(0, source("a"))
    join.add(0, Piece("A"))
    with pytest.raises(AssertionError):
        join.add(0, Piece("A2"))


def test_no_segments() -> None:
    join = Join(0, Segmented((), " \n"))
    assert join.done and join.text() == " \n" and join.segment_texts() == ()


def test_spans_tiers_and_labels_stay_with_their_segments() -> None:
    join = Join(0, source("ab", "c"))
    join.add(0, Piece("AB", tier="origin", model="o@1"))
    join.add(1, Piece("C", degraded="link_lost"))
    first, second = join.segment_texts()
    assert (first.text, first.start, first.end, first.tier, first.model, first.degraded) == (
        "AB",
        0,
        2,
        "origin",
        "o@1",
        False,
    )
    assert second.degraded and (second.start, second.end) == (3, 4)


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, Piece]]]:
    """Segments, each with drafts or partials before its final state, interleaved at random."""
    count = draw(st.integers(1, 6))
    lives = []
    for segment in range(count):
        kind = draw(st.sampled_from(["draft", "partial"]))
        early = draw(st.integers(0, 3))
        lives.append(
            [(segment, Piece(f"{kind}{n}", kind)) for n in range(early)] + [(segment, Piece(f"final{segment}"))]
        )
    order = draw(st.permutations([segment for segment, life in enumerate(lives) for _ in life]))
    return count, [lives[segment].pop(0) for segment in order]


@given(histories())
def test_any_interleaving(history: tuple[int, list[tuple[int, Piece]]]) -> None:
    count, events = history
    join = Join(0, source(*"abcdef"[:count]))
    seen: list[list[Update]] = [[] for _ in range(count)]
    for segment, piece in events:
        for update in join.add(segment, piece):
            assert all(seen[before] and seen[before][-1].kind != "partial" for before in range(update.segment)), (
                "shown before those ahead of it"
            )
            seen[update.segment].append(update)
    assert join.done
    for segment, updates in enumerate(seen):
        assert [u.revision for u in updates] == list(range(len(updates)))
        assert [u.kind for u in updates].count("segment") == 1 and updates[-1].text == f"final{segment}"
    assert join.text() == "".join(u[-1].gap + u[-1].text for u in seen) + "\n"


@given(st.lists(st.text(max_size=5), max_size=6), st.text(max_size=3))
def test_untranslated_segments_give_the_source_back(texts: list[str], tail: str) -> None:
    cut = source(*texts, tail=tail)
    join = Join(0, cut)
    for index, segment in enumerate(cut.segments):
        join.add(index, Piece(segment.text))
    assert join.text() == " ".join(texts) + tail


def test_the_next_best_texts_and_word_pairs_of_the_whole() -> None:
    join = Join(0, source("ab", "c", gap="\n"))
    assert join.add(0, Piece("XY", alternatives=("XZ", "Z"), alignment=(WordPair(0, 2, 1, 2),)))
    join.add(1, Piece("W", alternatives=("V",), alignment=(WordPair(0, 1, 0, 1),)))
    assert join.alternatives() == ("XZ\nV\n", "Z\nW\n")
    assert join.alignment() == (WordPair(0, 2, 1, 2), WordPair(3, 4, 3, 4))


def test_no_text_is_its_own_alternative() -> None:
    join = Join(0, source("a", "b"))
    join.add(0, Piece("A", alternatives=("A", "C")))
    join.add(1, Piece("B"))
    assert join.alternatives() == ("C B\n",)
