"""Sentences to measure with: of a corpus, or our own when there is none."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

from nearsay.lab.sentences import SHORT_ENGLISH

DEV_FILE = "tatoeba/tatoeba.{pair}.dev.tsv.gz"
TOKENS_MAX = 25  # "short"


def sentences(corpora: Path | None, pair: str, count: int) -> tuple[list[str], str]:
    """`count` English sentences, repeated when there are fewer, and where they are from."""
    if corpora is None:
        return list(itertools.islice(itertools.cycle(SHORT_ENGLISH), count)), "nearsay.lab.sentences"
    path = corpora / DEV_FILE.format(pair=pair)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = [line.split("\t")[0] for line in lines]
    return list(itertools.islice(itertools.cycle(found), count)), path.name
