"""Which parallel text trains a model, how much of each, and under which licence tier.

Decides: the mix. Must not know: tokens, tensors, models.
Invariants: only tiers A (attribution) and B (share-alike) train; a tier C file, or one that evaluates, is never read
for training. Files are gzipped UTF-8, `English<TAB>target` a line, under `CORPUS/CORPUS.en-XX.train.tsv.gz`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Tier = Literal["A", "B", "C"]
Pair = tuple[str, str]


class CorpusError(Exception):
    """A corpus is missing, malformed or not allowed for training; says which and why."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """share: of its pairs, in one epoch. part: the middle of the file name."""

    name: str
    tier: Tier
    share: float = 1.0
    part: str = "train"

    def path(self, folder: Path, target: str) -> Path:
        return folder / self.name / f"{self.name}.en-{target}.{self.part}.tsv.gz"


MIX: tuple[Corpus, ...] = (
    Corpus("tatoeba", "A"),
    Corpus("libreoffice-help", "B"),
    Corpus("ddtp", "B"),
    Corpus("gnome-help", "B"),
    Corpus("debian-docs", "B"),
    Corpus("wesnoth", "B"),
    Corpus("mozilla-www", "B"),
    Corpus("tldr", "A"),
    Corpus("opensource-guide", "A"),
    Corpus("mlqe-pe", "A"),
    Corpus("xquad", "B"),
    Corpus("ui-strings", "B", 0.35),
    Corpus("ding", "B", 0.08, "dict"),
)

EVALUATION: dict[str, str] = {
    "tatoeba.dev": "tatoeba/tatoeba.en-{target}.dev.tsv.gz",
    "multi30k.test_2016": "multi30k/multi30k.en-{target}.test_2016_flickr.tsv.gz",
    "docs.dev": "docs/docs.en-{target}.dev.tsv.gz",
    "newstest2014": "wmt/newstest2014.en-{target}.test.tsv.gz",
    "flores200.dev": "flores200/flores200.en-{target}.dev.tsv.gz",
}


def read_pairs(path: Path) -> Iterator[Pair]:
    """The pairs of a file, in its order. Raises CorpusError naming the file and line."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                source, tab, target = line.rstrip("\n").partition("\t")
                if not (tab and source and target) or "\t" in target:
                    raise CorpusError(f"{path.name}:{number}: not `source<TAB>target`")
                yield source, target
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path.name}: {error}") from error


def training_pairs(folder: Path, target: str, corpus: Corpus) -> list[Pair]:
    """All pairs of a training corpus. Raises CorpusError for tier C and for evaluation files."""
    if corpus.tier == "C":
        raise CorpusError(f"{corpus.name} has research or non-commercial terms: it may only evaluate")
    if corpus.part not in ("train", "dict"):
        raise CorpusError(f"{corpus.name}.{corpus.part} evaluates; it must never train")
    return list(read_pairs(corpus.path(folder, target)))


def evaluation_pairs(folder: Path, target: str, name: str, limit: int | None = None) -> list[Pair]:
    """The first `limit` pairs of an evaluation set. Raises CorpusError for an unknown name."""
    if name not in EVALUATION:
        raise CorpusError(f"no evaluation set {name!r}; there are {', '.join(EVALUATION)}")
    return list(read_pairs(folder / EVALUATION[name].format(target=target)))[:limit]
