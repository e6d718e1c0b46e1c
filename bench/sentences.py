"""Sentences to measure with: of a corpus, or our own when there is none."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

from nearsay.lab.sentences import SHORT_ENGLISH

DEV_FILE = "tatoeba/tatoeba.{pair}.dev.tsv.gz"
LONG_FILE = "flores200/flores200.{pair}.dev.tsv.gz"
TOKENS_MAX = 25  # "short"


def sentences(corpora: Path | None, pair: str, count: int) -> tuple[list[str], str]:
    """`count` English sentences, repeated when there are fewer, and where they are from."""
    if corpora is None:
        return list(itertools.islice(itertools.cycle(SHORT_ENGLISH), count)), "nearsay.lab.sentences"
    path = corpora / DEV_FILE.format(pair=pair)
    return list(itertools.islice(itertools.cycle(_column(path)), count)), path.name


def long_sentences(corpora: Path | None, pair: str) -> tuple[list[str], str]:
    """Longer English sentences, as bulk work has them, none of which is in `sentences`; our own without a corpus."""
    if corpora is None:
        return [f"{text[:-1]}, and that is all." for text in SHORT_ENGLISH], "nearsay.lab.sentences"
    path = corpora / LONG_FILE.format(pair=pair)
    return _column(path), path.name


def _column(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.split("\t")[0] for line in lines]
