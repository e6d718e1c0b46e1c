"""Provisional: cuts at sentence ends only, until the text room's segmenter replaces this file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

_SENTENCE = re.compile(r"\S(?:.{0,999}?(?:[.!?](?=\s)|$|(?=\n))|.{0,999})", re.MULTILINE)


class Segment(msgspec.Struct, frozen=True):
    start: int
    end: int
    text: str
    gap: str


class Segmented(msgspec.Struct, frozen=True):
    segments: tuple[Segment, ...]
    tail: str


def segment(text: str, language: str) -> Segmented:
    found: list[Segment] = []
    at = 0
    for match in _SENTENCE.finditer(text):
        found.append(Segment(match.start(), match.end(), match.group(), text[at : match.start()]))
        at = match.end()
    return Segmented(tuple(found), text[at:])


def split_long(segment: Segment, encode: Callable[[str], Sequence[int]], tokens_max: int) -> list[Segment]:
    if len(encode(segment.text)) <= tokens_max or len(segment.text) < 2:
        return [segment]
    middle = len(segment.text) // 2
    space = segment.text.rfind(" ", 1, middle + 1)
    cut = space if space > 0 else middle
    rest = segment.text[cut:]
    gap = rest[: len(rest) - len(rest.lstrip())]
    left = Segment(segment.start, segment.start + cut, segment.text[:cut], segment.gap)
    right = Segment(left.end + len(gap), segment.end, rest[len(gap) :], gap)
    return [part for half in (left, right) for part in split_long(half, encode, tokens_max)]
