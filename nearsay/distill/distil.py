"""The teacher's own translations of the training sources: what a student learns from.

Sequence-level knowledge distillation (Kim and Rush, 2016). Decides: which sources, in which order, and that the work
can stop and go on. The file it writes is a corpus like any other: `source<TAB>translation`, gzipped.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nearsay.distill.corpus import Corpus, CorpusError, Pair, read_pairs, training_pairs
from nearsay.distill.symbols import protect

CHUNK = 2048
RUNAWAY = 3.0  # a translation longer than this many times its source has lost its way


def distillation_sources(folder: Path, target: str, mix: Sequence[Corpus], *, symbols: float, seed: int) -> list[str]:
    """Each corpus's share of its sources, mixed, each once; `symbols` of those that can have protected items show
    them as symbols."""
    rng = random.Random(seed)
    sources: dict[str, None] = {}
    for corpus in mix:
        for source, reference in training_pairs(folder, target, corpus):
            if rng.random() >= corpus.share:
                continue
            done = protect(source, reference, rng) if rng.random() < symbols else None
            sources[done[0] if done else source] = None
    order = list(sources)
    rng.shuffle(order)
    return order


def translate_sources(
    sources: Sequence[str], translate: Callable[[Sequence[str]], Sequence[str]], path: Path, stop: Callable[[], bool]
) -> Iterator[int]:
    """Appends to `path`, going on after what is there; yields how many sources are done after each chunk."""
    done = count_lines(path)
    while done < len(sources) and not stop():
        part = sources[done : done + CHUNK]
        lines = [f"{s}\t{' '.join(t.split()) or '-'}\n" for s, t in zip(part, translate(part), strict=True)]
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "ab") as file:  # one gzip member a chunk
            file.write("".join(lines).encode())
        done += len(part)
        yield done


def count_lines(path: Path) -> int:
    return sum(1 for _ in read_pairs(path)) if path.exists() else 0


def distilled_pairs(path: Path) -> list[Pair]:
    """The pairs worth learning from: runaway, empty and repeating translations are left out."""
    if not path.exists():
        raise CorpusError(f"{path.name} isn't there: run `nearsay distill translate` first")
    return [(s, t) for s, t in read_pairs(path) if sane(s, t)]


def sane(source: str, translation: str) -> bool:
    words = translation.split()
    if not words or translation == "-" or len(translation) > RUNAWAY * len(source) + 20:
        return False
    return len(words) < 12 or len(set(words)) * 3 > len(words)
