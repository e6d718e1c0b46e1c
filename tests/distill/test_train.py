from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from nearsay.distill.checkpoint import CheckpointError, load_checkpoint
from nearsay.distill.dataset import Packed, pack
from nearsay.distill.schedule import Schedule
from nearsay.distill.train import Recipe, Report, Trainer, training_copy
from nearsay.nmt.config import ModelConfig
from tests.distill.kit import toy_config, toy_network, toy_pairs, toy_vocab

FAST = Schedule(peak=5e-3, warm_up=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder: Path = tmp_path_factory.mktemp("pair")
    return pack([toy_pairs(200)], toy_vocab(folder, "s.spm", 0), toy_vocab(folder, "t.spm", 1), seed=1)


def config(data: Packed) -> ModelConfig:
    return toy_config(src=int(data.src.max()) + 1, trg=int(data.trg.max()) + 1)


def trainer(data: Packed, folder: Path, tokens: int) -> Trainer:
    recipe = Recipe(tokens, batch_tokens=256, schedule=FAST, report_every_steps=5, symbols=0.5)
    model = training_copy(toy_network(config(data)), torch.device("cpu"))
    return Trainer(model, recipe, folder / "run.checkpoint.safetensors")


def test_the_loss_falls_and_the_encoder_stays(data: Packed, tmp_path: Path) -> None:
    reports: list[Report] = []
    made = trainer(data, tmp_path, 12_000)
    frozen = {n: p.clone() for n, p in made._model.named_parameters() if n.startswith(("encoder.", "src_"))}
    assert made.run(data, [1.0], reports.append, lambda: False)
    assert reports[-1].loss < 0.6 * reports[0].loss
    assert 12_000 <= made.progress.tokens < 12_000 + 256
    assert reports[-1].tokens_total == 12_000
    assert all(torch.equal(p, frozen[n]) for n, p in made._model.named_parameters() if n in frozen)
    assert set(made.averages) == {n for n, _ in made._model.named_parameters()} - set(frozen)


def test_a_stopped_run_goes_on_where_it_was(data: Packed, tmp_path: Path) -> None:
    first = trainer(data, tmp_path, 6_000)
    calls = itertools.count()
    assert not first.run(data, [1.0], lambda report: None, lambda: next(calls) >= 8)
    progress, masters, averages = load_checkpoint(tmp_path / "run.checkpoint.safetensors")
    assert progress == first.progress
    assert progress.step == 8
    second = trainer(data, tmp_path, 6_000)
    assert second.progress == progress
    assert all(torch.equal(second._optimiser.masters[n], t) for n, t in masters.items())
    assert all(torch.equal(second.averages[n], t) for n, t in averages.items())
    assert second.run(data, [1.0], lambda report: None, lambda: False)
    assert second.progress.tokens >= 6_000
    assert trainer(data, tmp_path, 6_000).run(data, [1.0], lambda report: None, lambda: False)


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="x"):
        load_checkpoint(tmp_path / "x.safetensors")


def test_the_rate_warms_up_and_falls() -> None:
    schedule = Schedule(peak=1.0, warm_up=10, level=0.5, last=0.1)
    assert schedule.rate(0, 0.0) == pytest.approx(0.1)
    assert schedule.rate(9, 0.4) == 1.0
    assert schedule.rate(99, 0.75) == pytest.approx(0.55)
    assert schedule.rate(99, 1.0) == pytest.approx(0.1)
    assert schedule.rate(99, 2.0) == pytest.approx(0.1)
