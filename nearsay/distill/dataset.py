"""Training pairs as packed arrays of ids, made once, and the batches of an epoch.

Decides: which pairs an epoch holds (each corpus's share, symbols or not) and which of them share a batch.
Must not know: text, after packing; networks.
Invariants: the same seed and epoch give the same batches; a batch holds at most `tokens` padded target positions and
twice as many source positions; both sides end with `</s>`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from nearsay.distill.corpus import Pair
from nearsay.distill.symbols import protect

LENGTH_MAX = 160
ITEM_KEPT = 0.25  # chance that one protected item of a protected pair stays plain text
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """src [B, S] and trg [B, T] padded ids; src_lens [B], trg_lens [B]."""

    src: Tensor
    src_lens: Tensor
    trg: Tensor
    trg_lens: Tensor

    @property
    def tokens(self) -> int:
        return int(self.trg_lens.sum())


@dataclass(frozen=True, slots=True)
class Packed:
    """Ragged ids as one flat array and offsets a side; corpus [N] index into the mix; twin [N] the row of the same pair
    with symbols in it, -1 when there is none, -2 when the row is such a twin itself."""

    src: Array
    src_at: Array
    trg: Array
    trg_at: Array
    corpus: Array
    twin: Array

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self, name) for name in self.__slots__}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Packed:
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{name: stored[name] for name in cls.__slots__})

    def __len__(self) -> int:
        return len(self.corpus)


def pack(
    groups: Sequence[Sequence[Pair]], src: SentencePieceProcessor, trg: SentencePieceProcessor, *, seed: int
) -> Packed:
    """groups: the pairs of each corpus of the mix. Pairs longer than LENGTH_MAX tokens on a side are left out."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    corpus: list[int] = []
    twin_of: list[int] = []
    for index, group in enumerate(groups):
        for source, target in group:
            pairs.append((source, target))
            corpus.append(index)
            twin_of.append(-1)
            replaced = protect(source, target, rng, keep=ITEM_KEPT)
            if replaced is not None:
                pairs.append(replaced[:2])
                corpus.append(index)
                twin_of.append(len(pairs) - 2)
    src_ids = src.encode([s for s, _ in pairs])
    trg_ids = trg.encode([t for _, t in pairs])
    fits = [0 < len(s) < LENGTH_MAX and 0 < len(t) < LENGTH_MAX for s, t in zip(src_ids, trg_ids, strict=True)]
    place = np.cumsum(fits) - 1
    twin = np.full(int(sum(fits)), -1, np.int64)
    for row, (fit, parent) in enumerate(zip(fits, twin_of, strict=True)):
        if fit and parent >= 0 and fits[parent]:
            twin[place[parent]], twin[place[row]] = place[row], -2
        elif fit and parent >= 0:
            twin[place[row]] = -2
    keep = [row for row, fit in enumerate(fits) if fit]
    flat_src, src_at = _ragged([src_ids[row] for row in keep], src.eos_id())
    flat_trg, trg_at = _ragged([trg_ids[row] for row in keep], trg.eos_id())
    return Packed(flat_src, src_at, flat_trg, trg_at, np.array([corpus[row] for row in keep], np.uint8), twin)


def _ragged(rows: Sequence[Sequence[int]], eos: int) -> tuple[Array, Array]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) + 1 for row in rows], out=offsets[1:])
    flat = np.empty(int(offsets[-1]), np.uint16)
    for row, start, end in zip(rows, offsets, offsets[1:], strict=False):
        flat[start : end - 1], flat[end - 1] = row, eos
    return flat, offsets


def load_packed(cache: Path, make: Callable[[], Packed]) -> Packed:
    """`cache` when it is there, else what `make` makes, kept there. The name of the cache must tell its content."""
    if not cache.exists():
        make().save(cache)
    return Packed.load(cache)


def epoch_rows(data: Packed, shares: Sequence[float], *, symbols: float, seed: int, epoch: int) -> Array:
    """The rows of one epoch: each corpus's share of its pairs; of pairs that have a twin, `symbols` give way to it."""
    rng = np.random.default_rng((seed, epoch))
    plain = np.flatnonzero(data.twin != -2)
    chosen = plain[rng.random(len(plain)) < np.asarray(shares)[data.corpus[plain]]]
    twin = data.twin[chosen]
    swap = (twin >= 0) & (rng.random(len(chosen)) < symbols)
    rows: Array = np.where(swap, twin, chosen)
    return rows


def batches(data: Packed, rows: Array, *, tokens: int, pad: int, seed: int, epoch: int) -> Iterator[Batch]:
    """Rows of like length together, the batches in random order."""
    rng = np.random.default_rng((seed, epoch, 1))
    src_len = data.src_at[rows + 1] - data.src_at[rows]
    trg_len = data.trg_at[rows + 1] - data.trg_at[rows]
    order = np.lexsort((rng.random(len(rows)), src_len, trg_len))
    groups = list(_groups(src_len[order], trg_len[order], tokens))
    for index in rng.permutation(len(groups)):
        start, end = groups[index]
        yield collate(data, rows[order[start:end]], pad)


def _groups(src_len: Array, trg_len: Array, tokens: int) -> Iterator[tuple[int, int]]:
    start, widest_src, widest_trg = 0, 0, 0
    for at in range(len(trg_len)):
        wide_src, wide_trg = max(widest_src, int(src_len[at])), max(widest_trg, int(trg_len[at]))
        rows = at + 1 - start
        if at > start and (wide_trg * rows > tokens or wide_src * rows > 2 * tokens):
            yield start, at
            start, wide_src, wide_trg = at, int(src_len[at]), int(trg_len[at])
        widest_src, widest_trg = wide_src, wide_trg
    if start < len(trg_len):
        yield start, len(trg_len)


def collate(data: Packed, rows: Array, pad: int) -> Batch:
    src, src_lens = _padded(data.src, data.src_at, rows, pad)
    trg, trg_lens = _padded(data.trg, data.trg_at, rows, pad)
    return Batch(src, src_lens, trg, trg_lens)


def _padded(flat: Array, offsets: Array, rows: Array, pad: int) -> tuple[Tensor, Tensor]:
    lens = offsets[rows + 1] - offsets[rows]
    out = np.full((len(rows), int(lens.max())), pad, np.int64)
    for line, row in enumerate(rows):
        out[line, : lens[line]] = flat[offsets[row] : offsets[row + 1]]
    return torch.from_numpy(out), torch.from_numpy(lens)
