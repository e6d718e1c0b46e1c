from __future__ import annotations

from pathlib import Path

import torch

from nearsay.distill.dataset import batches, epoch_rows, pack
from nearsay.distill.student import best_layers, keep_layers, mean_loss
from nearsay.nmt.weights.load import build_model
from tests.distill.kit import toy_config, toy_network, toy_pairs, toy_vocab


def test_kept_layers_are_the_teachers_own() -> None:
    teacher = toy_network(toy_config(decoder_layers=4))
    config, weights = keep_layers(teacher.config, teacher.state_dict(), [1, 3])
    student = build_model(config, weights)
    assert config.decoder_layers == 2
    for ours, theirs in ((0, 1), (1, 3)):
        pairs = zip(student.decoder.layers[ours].parameters(), teacher.decoder.layers[theirs].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(student.src_embedding.weight, teacher.src_embedding.weight)


def test_the_choice_that_loses_least_is_taken(tmp_path: Path) -> None:
    data = pack([toy_pairs(40)], toy_vocab(tmp_path, "s.spm", 0), toy_vocab(tmp_path, "t.spm", 1), seed=1)
    teacher = toy_network(toy_config(src=int(data.src.max()) + 1, trg=int(data.trg.max()) + 1, decoder_layers=3))
    rows = epoch_rows(data, [1.0], symbols=0.0, seed=1, epoch=0)
    sample = list(batches(data, rows, tokens=500, pad=2, seed=1, epoch=0))
    weights = teacher.state_dict()
    losses = {n: mean_loss(build_model(*keep_layers(teacher.config, weights, [n, 2])), sample) for n in range(2)}
    assert best_layers(teacher.config, weights, 2, sample) == [min(losses, key=losses.__getitem__), 2]
