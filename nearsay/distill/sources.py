"""The data of a training run, from files to packed arrays in a cache whose name tells what is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nearsay.distill.corpus import MIX, Pair, training_pairs
from nearsay.distill.dataset import Batch, Packed, batches, epoch_rows, load_packed, pack
from nearsay.distill.distil import distilled_pairs
from nearsay.distill.publish import SOURCE_VOCAB, TARGET_VOCAB
from nearsay.distill.translator import load_spm

CACHE = "cache"
SEED = 1


@dataclass(frozen=True, slots=True)
class Sources:
    """corpora: folder of the corpora. pair: folder with the two vocabularies. runs: where caches go.
    distilled: the teacher's translations, or None to learn from references alone. references: the share of the
    references' own share that stays beside the teacher's translations."""

    corpora: Path
    pair: Path
    runs: Path
    target: str = "de"
    distilled: Path | None = None
    references: float = 1.0

    def load(self) -> tuple[Packed, list[float]]:
        """The packed pairs, and each group's share of them in an epoch."""
        shares = [corpus.share * self.references for corpus in MIX]
        return load_packed(self._cache(), self._pack), [*shares, 1.0] if self.distilled else shares

    def batches(self, pad: int, tokens: int = 500) -> Iterator[Batch]:
        """Small batches of an epoch without symbols, in random order: a sample to try things on."""
        data, shares = self.load()
        rows = epoch_rows(data, shares, symbols=0.0, seed=SEED, epoch=0)
        return batches(data, rows, tokens=tokens, pad=pad, seed=SEED, epoch=0)

    def _pack(self) -> Packed:
        groups: list[list[Pair]] = [training_pairs(self.corpora, self.target, corpus) for corpus in MIX]
        if self.distilled:
            groups.append(distilled_pairs(self.distilled))
        return pack(groups, load_spm(self.pair / SOURCE_VOCAB), load_spm(self.pair / TARGET_VOCAB), seed=SEED)

    def _cache(self) -> Path:
        """Vocabularies by content; corpora by name and size, which is enough for files that are never edited."""
        told = hashlib.sha256()
        for name in (SOURCE_VOCAB, TARGET_VOCAB):
            told.update((self.pair / name).read_bytes())
        files = [corpus.path(self.corpora, self.target) for corpus in MIX]
        for file in [*files, *([self.distilled] if self.distilled else [])]:
            told.update(f"{file.name}:{file.stat().st_size if file.exists() else 0};".encode())
        return self.runs / CACHE / f"mix-{told.hexdigest()[:16]}.npz"
