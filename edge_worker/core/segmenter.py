"""A text into segments: about one sentence each, with exact gaps.

Decides: which newlines end a paragraph and which only wrap a line, and where segments begin and end. Sentence ends are
sentence_rules.py's. Must not know: tokens (but through `split_long`'s encode), models, tiers.
Invariants: text == "".join(s.gap + s.text for s in segments) + tail, whatever the text; a segment neither begins nor
ends with whitespace and holds at most SEGMENT_CHARACTERS_MAX characters; time is linear in the text.
List, quote and heading marks at the start of a line belong to the gap: they come back as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from edge_worker.core.sentence_rules import SENTENCE_MARKS, TERMINATOR, ends_sentence

SEGMENT_CHARACTERS_MAX = 1_500
WRAP_WIDTH_MIN, WRAP_WIDTH_MAX = 45, 160  # characters; shorter lines are chat or a list, longer ones don't wrap
FIRST_WORD_MAX = 24

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_MARK = re.compile(r"\s*(?:(?:[-*+•·–—>#|]+|\d{1,3}[.)])[ \t]+)*")
_FIRST_WORD = re.compile(r"\S+")
_SENTENCE_END = re.compile(TERMINATOR.pattern + r"\Z")
_CUT_AFTER = (re.compile(r"[,;:、，；](?=\s|\Z)|[、，；]|\s[–—-]+(?=\s)"), re.compile(r"\s+"))
_JOINERS = "\u200d\ufe0f\ufe0e"


class Segment(msgspec.Struct, frozen=True):
    """Half-open span [start, end) of the text; `gap` is what stands between the segment before and this one.

    growing: it is the text's last and doesn't end as a sentence does, so a writer may not be done with it.
    """

    start: int
    end: int
    text: str
    gap: str
    growing: bool = False

    @property
    def plain(self) -> str:
        """The text as a model wants it: a wrapped line is one line."""
        return " ".join(self.text.split()) if "\n" in self.text or "\r" in self.text else self.text


class Segmented(msgspec.Struct, frozen=True):
    """A cut text; `tail` follows the last segment."""

    segments: tuple[Segment, ...]
    tail: str


class _Line(msgspec.Struct):
    """A line that is not blank: its span, where its words begin, and whether the line before runs on into it."""

    start: int
    end: int
    words: int
    continues: bool = False


def segment(text: str, language: str) -> Segmented:
    """Cut a text. `language` is the source's code; an unknown one gets the rules that all share."""
    found: list[Segment] = []
    at = 0
    for block_start, block_end in _blocks(text):
        for start, end in _sentences(text, block_start, block_end, language):
            for piece_start, piece_end in _bounded(text, start, end):
                found.append(Segment(piece_start, piece_end, text[piece_start:piece_end], text[at:piece_start]))
                at = piece_end
    if found and not _SENTENCE_END.search(found[-1].text):
        found[-1] = msgspec.structs.replace(found[-1], growing=True)
    return Segmented(tuple(found), text[at:])


def split_long(segment: Segment, encode: Callable[[str], Sequence[int]], tokens_max: int) -> list[Segment]:
    """Parts of at most `tokens_max` tokens each, as far as there is anything to cut; [segment] if there is not.

    Cuts near the middle, at clause punctuation, then at a space, then anywhere. The first part's gap is the segment's.
    """
    halves = _halves(segment, encode, tokens_max)
    if len(halves) == 1:
        return halves
    return [part for half in halves for part in split_long(half, encode, tokens_max)]


# ---- lines and blocks ------------------------------------------------------------------------------------------------


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Spans that are read as running text: a line, or wrapped lines together. Marks before them are left out."""
    start = end = -1
    for line in _lines(text):
        if not line.continues and start >= 0:
            yield start, end
        start, end = (start if line.continues else line.words), line.end
    if start >= 0:
        yield start, end


def _lines(text: str) -> Iterator[_Line]:
    """Lines with words in them, paragraph by paragraph."""
    paragraph: list[_Line] = []
    for match in _LINE.finditer(text):
        if match.group().isspace():
            continue
        line = _line(text, match.start(), match.end())
        if paragraph and not _adjacent(text, paragraph[-1].end, line.start):
            yield from _wrapped(text, paragraph)
            paragraph = []
        paragraph.append(line)
    yield from _wrapped(text, paragraph)


def _line(text: str, start: int, end: int) -> _Line:
    match = _MARK.match(text, start, end)
    assert match is not None
    words = match.end()
    if words >= end and (span := _stripped(text, start, end)):
        words, _ = span  # nothing but marks: they are all there is to translate
    return _Line(start, end, words)


def _adjacent(text: str, end: int, start: int) -> bool:
    """One newline between two lines, and no blank line."""
    return text[end:start].replace("\r\n", "\n") in ("\n", "\r")


def _wrapped(text: str, paragraph: list[_Line]) -> list[_Line]:
    """Mark the lines that only go on with the line before.

    Such a line starts with a word that would not have fitted there. A paragraph is taken for wrapped when at least
    half of its newlines are of that kind; then a lower-case word after a long line without an end goes on, too,
    since not every wrapper fills its lines.
    """
    width = max((line.end - line.start for line in paragraph), default=0)
    if len(paragraph) < 2 or not WRAP_WIDTH_MIN <= width <= WRAP_WIDTH_MAX:
        return paragraph
    full = [_is_full(text, before, line, width) for before, line in pairwise(paragraph)]
    if 2 * sum(full) < len(full):
        return paragraph
    for is_full, (before, line) in zip(full, pairwise(paragraph), strict=True):
        open_end = before.end - before.start >= WRAP_WIDTH_MIN and text[before.end - 1] not in SENTENCE_MARKS
        line.continues = is_full or (open_end and _is_unmarked(text, line) and text[line.words].islower())
    return paragraph


def _is_full(text: str, before: _Line, line: _Line, width: int) -> bool:
    """Whether the line's first word would not have fitted on the line before."""
    word = _FIRST_WORD.match(text, line.words, min(line.end, line.words + FIRST_WORD_MAX))
    length = word.end() - word.start() if word else 0
    return _is_unmarked(text, line) and before.end - before.start + 1 + length > width


def _is_unmarked(text: str, line: _Line) -> bool:
    return not text[line.start : line.words].strip()


# ---- sentences -------------------------------------------------------------------------------------------------------


def _sentences(text: str, start: int, stop: int, language: str) -> Iterator[tuple[int, int]]:
    """Spans of the sentences of a block, without the whitespace around them."""
    for match in TERMINATOR.finditer(text, start, stop):
        if ends_sentence(text, match.start(), match.end(), stop, language):
            if span := _stripped(text, start, match.end()):
                yield span
            start = match.end()
    if span := _stripped(text, start, stop):
        yield span


def _stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def _bounded(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A sentence, or pieces of it when it is longer than a segment may be."""
    while end - start > SEGMENT_CHARACTERS_MAX:
        cut = _cut(text, start + SEGMENT_CHARACTERS_MAX // 2, start + SEGMENT_CHARACTERS_MAX, last=True)
        if span := _stripped(text, start, cut):
            yield span
        start = cut
    if span := _stripped(text, start, end):
        yield span


def _halves(whole: Segment, encode: Callable[[str], Sequence[int]], tokens_max: int) -> list[Segment]:
    size = len(whole.text)
    if size < 2 or len(encode(whole.plain)) <= tokens_max:
        return [whole]
    cut = _cut(whole.text, max(1, size // 4), max(1, size * 3 // 4), last=False)
    left = _stripped(whole.text, 0, cut)
    right = _stripped(whole.text, cut, size)
    if left is None or right is None:
        return [whole]
    return [_part(whole, left, whole.gap), _part(whole, right, whole.text[left[1] : right[0]])]


def _part(whole: Segment, span: tuple[int, int], gap: str) -> Segment:
    growing = whole.growing and span[1] == len(whole.text)
    return Segment(whole.start + span[0], whole.start + span[1], whole.text[span[0] : span[1]], gap, growing)


def _cut(text: str, low: int, high: int, *, last: bool) -> int:
    """The best place to cut in [low, high]: after clause punctuation, at a space, anywhere. The last such place, or
    the one nearest to the middle."""
    for pattern in _CUT_AFTER:
        places = [match.end() for match in pattern.finditer(text, low, high)]
        if places:
            return places[-1] if last else min(places, key=lambda place: abs(place - (low + high) // 2))
    return _between_characters(text, high if last else (low + high) // 2, low)


def _between_characters(text: str, at: int, low: int) -> int:
    """`at`, or a little before it, so that no mark is torn off its base character; `at` itself if that can't be had."""
    for place in range(at, max(low, at - 16), -1):
        torn = unicodedata.combining(text[place : place + 1] or " ") or text[place : place + 1] in _JOINERS
        if not torn and text[place - 1] != "\u200d":
            return place
    return at
