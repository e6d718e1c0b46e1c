"""Which source words a translation's words were made from, as spans of both texts.

Decides: how the pieces of a vocabulary become words. Must not know: models, ids, attention.
Invariants: every span is a whole word (no whitespace in it) of its text; where pieces and text don't have the same
words, as after a normalisation that makes or takes spaces, there is no answer rather than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nearsay.wire.messages import WordPair

WORD_MARK = "▁"  # begins a piece that begins a word (SentencePiece)

_WORD = re.compile(r"\S+")


def word_pairs(
    source: str, source_pieces: Sequence[str], target: str, target_pieces: Sequence[str], alignment: Sequence[int]
) -> tuple[WordPair, ...]:
    """alignment: for each target piece the place of a source piece. Pairs in the order of the target, each once."""
    source_words, target_words = _words(source, source_pieces), _words(target, target_pieces)
    if source_words is None or target_words is None or len(alignment) != len(target_pieces):
        return ()
    pairs = [
        WordPair(*source_words[at], *word)
        for word, at in zip(target_words, alignment, strict=True)
        if at < len(source_words)
    ]
    return tuple(dict.fromkeys(pairs))


def _words(text: str, pieces: Sequence[str]) -> list[tuple[int, int]] | None:
    """The word that each piece belongs to; None when the text has other words than the pieces."""
    spans = [match.span() for match in _WORD.finditer(text)]
    numbers: list[int] = []
    number = -1
    for place, piece in enumerate(pieces):
        number += place == 0 or piece.startswith(WORD_MARK)
        numbers.append(number)
    return [spans[number] for number in numbers] if number + 1 == len(spans) else None
