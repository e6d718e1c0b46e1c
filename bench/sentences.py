"""Sentences to measure with: of a corpus, or our own when there is none."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

from nearsay.lab.sentences import SHORT_ENGLISH

DEV_FILE = "{name}/{name}.{pair}.dev.tsv.gz"
TOKENS_MAX = 25  # "short"

_ENDS_WITHIN = re.compile(r"[.?!].*\w")


def sentences(corpora: Path | None, pair: str, count: int) -> tuple[list[str], str]:
    """`count` English sentences, repeated when there are fewer, and where they are from."""
    if corpora is None:
        return list(itertools.islice(itertools.cycle(SHORT_ENGLISH), count)), "nearsay.lab.sentences"
    found = [source for source, _ in dev_pairs(corpora, "tatoeba", pair)]
    return list(itertools.islice(itertools.cycle(found), count)), Path(DEV_FILE.format(name="tatoeba", pair=pair)).name


def long_sentences(corpora: Path | None, pair: str) -> tuple[list[str], str]:
    """Longer English sentences, as bulk work has them, none of which is in `sentences`; our own without a corpus."""
    if corpora is None:
        return [f"{text[:-1]}, and that is all." for text in SHORT_ENGLISH], "nearsay.lab.sentences"
    found = [source for source, _ in dev_pairs(corpora, "flores200", pair)]
    return found, Path(DEV_FILE.format(name="flores200", pair=pair)).name


def dev_pairs(corpora: Path, name: str, pair: str) -> list[tuple[str, str]]:
    """Sources and references of a corpus' dev part, in its order, the first reference of each source."""
    found: dict[str, str] = {}
    with gzip.open(corpora / DEV_FILE.format(name=name, pair=pair), "rt", encoding="utf-8") as lines:
        for line in lines:
            source, reference = line.rstrip("\n").split("\t")[:2]
            found.setdefault(source, reference)
    return list(found.items())


def one_sentence(text: str, words_min: int, words_max: int) -> bool:
    """Whether a text is one sentence (several would be several segments) of so many words."""
    return words_min <= len(text.split()) <= words_max and not _ENDS_WITHIN.search(text)
