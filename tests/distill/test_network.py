from __future__ import annotations

import torch

from nearsay.distill.network import DropoutPool, decode_states
from nearsay.nmt.config import START
from tests.distill.kit import toy_config, toy_network

OFF = DropoutPool(0.0)
SRC = torch.tensor([[40, 41, 42, 0], [43, 0, 2, 2]])
SRC_LENS = torch.tensor([4, 2])
TRG = torch.tensor([[50, 51, 52, 0], [53, 0, 2, 2]])


def test_without_dropout_the_pass_equals_the_networks_own() -> None:
    model = toy_network(toy_config())
    states = decode_states(model, SRC, SRC_LENS, TRG, OFF)
    fed = torch.cat([torch.full((2, 1), START), TRG[:, :-1]], 1)
    assert torch.allclose(model.logits(states), model(SRC, SRC_LENS, fed), atol=1e-5)


def test_padding_is_seen_by_nobody() -> None:
    model = toy_network(toy_config())
    wide = decode_states(model, SRC, SRC_LENS, TRG, OFF)[1, :2]
    alone = decode_states(model, SRC[1:, :2], SRC_LENS[1:], TRG[1:, :2], OFF)[0]
    other = decode_states(model, torch.where(SRC == 2, 77, SRC), SRC_LENS, TRG, OFF)[1, :2]
    assert torch.allclose(wide, alone, atol=1e-5)
    assert torch.equal(wide, other)


def test_a_position_sees_only_ids_before_it() -> None:
    model = toy_network(toy_config())
    changed = TRG.clone()
    changed[0, 2] = 60
    before, after = (decode_states(model, SRC, SRC_LENS, trg, OFF)[0] for trg in (TRG, changed))
    assert torch.allclose(before[:3], after[:3], atol=1e-6)
    assert not torch.allclose(before[3], after[3], atol=1e-3)


def test_only_the_decoder_gets_a_gradient() -> None:
    model = toy_network(toy_config()).requires_grad_(True)
    decode_states(model, SRC, SRC_LENS, TRG, DropoutPool(0.1)).sum().backward()
    learnt = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learnt == {n for n, _ in model.named_parameters() if not n.startswith(("encoder.", "src_embedding."))}


def test_dropout_keeps_the_mean_and_repeats_with_its_seed() -> None:
    ones = torch.ones(400, 50)
    drop = DropoutPool(0.25, seed=3, size=1 << 16)
    dropped = drop(ones)
    assert 0.2 < float((dropped == 0).float().mean()) < 0.3
    assert abs(float(dropped.mean()) - 1) < 0.05
    assert torch.equal(DropoutPool(0.25, seed=3, size=1 << 16)(ones), dropped)
    assert drop(torch.ones(1 << 17)).shape == (1 << 17,)
