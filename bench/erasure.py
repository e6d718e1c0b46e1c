"""How calm and how late a growing translation is: normalised erasure and lag, as Arivazhagan et al. (2020) have them
("Re-translation versus Streaming for Simultaneous Translation"), in words.

`shown`: the translation after each event of one text, an event being one more source word.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Words = Sequence[str]


def erasure(shown: Sequence[Words]) -> int:
    """Words taken back, all events together."""
    return sum(len(before) - _common(before, after) for before, after in itertools.pairwise(shown))


def lag(shown: Sequence[Words]) -> float:
    """How many source words later than evenly spread a final word came to stand for good, on average."""
    final = shown[-1]
    if not final:
        return 0.0
    late = 0.0
    for place in range(len(final)):
        event = len(shown)
        while event > 1 and list(shown[event - 2][: place + 1]) == list(final[: place + 1]):
            event -= 1
        late += event - (place + 1) * len(shown) / len(final)
    return late / len(final)


def held_back(words: Words, mask: int) -> Words:
    """The words that are shown when the last `mask` are not."""
    return words[: max(len(words) - mask, 0)]


def _common(one: Words, other: Words) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length
