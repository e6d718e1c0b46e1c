from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nearsay.distill.dataset import Packed, batches, epoch_rows, load_packed, pack
from nearsay.distill.translator import load_spm
from tests.distill.kit import toy_pairs, toy_vocab


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("pair")
    toy_vocab(folder, "source.spm", 0)
    toy_vocab(folder, "target.spm", 1)
    return folder


@pytest.fixture(scope="module")
def packed(folder: Path) -> Packed:
    groups = [toy_pairs(150, seed=1), toy_pairs(50, seed=2)]
    return pack(groups, load_spm(folder / "source.spm"), load_spm(folder / "target.spm"), seed=3)


def row(flat: np.ndarray, at: np.ndarray, index: int) -> list[int]:
    return flat[at[index] : at[index + 1]].tolist()


def test_rows_end_with_eos_and_decode_to_their_text(packed: Packed, folder: Path) -> None:
    src, trg = load_spm(folder / "source.spm"), load_spm(folder / "target.spm")
    source, target = toy_pairs(150, seed=1)[0]
    assert row(packed.src, packed.src_at, 0) == [*src.encode(source), 0]
    assert row(packed.trg, packed.trg_at, 0) == [*trg.encode(target), 0]


def test_a_twin_is_the_same_pair_with_symbols_on_both_sides(packed: Packed) -> None:
    parents = np.flatnonzero(packed.twin >= 0)
    assert len(parents) > 20
    for parent in parents:
        twin = packed.twin[parent]
        assert packed.twin[twin] == -2
        symbols = [sorted(i for i in row(*side, twin) if 3 <= i < 35) for side in sides(packed)]
        assert symbols[0] == symbols[1] != []
        assert not any(3 <= i < 35 for side in sides(packed) for i in row(*side, parent))


def sides(packed: Packed) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return (packed.src, packed.src_at), (packed.trg, packed.trg_at)


def test_an_epoch_takes_each_corpus_by_its_share_and_either_row_of_a_twin(packed: Packed) -> None:
    rows = epoch_rows(packed, [1.0, 0.0], symbols=1.0, seed=1, epoch=0)
    assert set(packed.corpus[rows]) == {0}
    assert len(rows) == 150
    assert all(packed.twin[r] < 0 for r in rows)
    plain = epoch_rows(packed, [1.0, 1.0], symbols=0.0, seed=1, epoch=0)
    assert len(plain) == 200
    assert all(packed.twin[r] != -2 for r in plain)


def test_batches_hold_each_row_once_within_the_limit(packed: Packed) -> None:
    rows = epoch_rows(packed, [1.0, 1.0], symbols=0.5, seed=1, epoch=0)
    made = list(batches(packed, rows, tokens=128, pad=2, seed=1, epoch=0))
    assert sum(len(batch.trg) for batch in made) == len(rows)
    assert sum(batch.tokens for batch in made) == int((packed.trg_at[rows + 1] - packed.trg_at[rows]).sum())
    for batch in made:
        assert batch.trg.numel() <= 128 or len(batch.trg) == 1
        assert batch.src.numel() <= 256 or len(batch.src) == 1
        assert torch.equal((batch.trg != 2).sum(1), batch.trg_lens)
        assert torch.equal((batch.src != 2).sum(1), batch.src_lens)


def test_the_same_seed_gives_the_same_epoch_and_another_epoch_another_order(packed: Packed) -> None:
    def first(epoch: int) -> torch.Tensor:
        rows = epoch_rows(packed, [0.5, 0.5], symbols=0.5, seed=1, epoch=epoch)
        return next(iter(batches(packed, rows, tokens=128, pad=2, seed=1, epoch=epoch))).trg

    assert torch.equal(first(0), first(0))
    assert first(0).shape != first(1).shape or not torch.equal(first(0), first(1))


def test_the_cache_is_made_once_and_read_after(packed: Packed, tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> Packed:
        calls.append(1)
        return packed

    for _ in range(2):
        again = load_packed(tmp_path / "deep" / "mix.npz", make)
    assert len(calls) == 1
    assert all(np.array_equal(getattr(again, name), getattr(packed, name)) for name in Packed.__slots__)


def test_pairs_that_are_too_long_are_left_out(folder: Path) -> None:
    long = ("the cat sees the dog. " * 60, "kurz.")
    made = pack([[long, *toy_pairs(2)]], load_spm(folder / "source.spm"), load_spm(folder / "target.spm"), seed=1)
    assert sum(made.twin != -2) == 2
