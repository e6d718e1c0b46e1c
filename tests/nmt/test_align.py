from __future__ import annotations

import msgspec
import pytest
import torch

from nearsay.nmt.align import align
from nearsay.nmt.decoding import greedy, start
from tests.nmt.tiny import VARIANTS, sources, tiny_model


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("prefix", [(), (5, 9)])
@torch.inference_mode()
def test_the_same_in_any_slot_after_any_past(variant: str, prefix: tuple[int, ...]) -> None:
    config = msgspec.structs.replace(VARIANTS[variant], prefix_ids=prefix)
    model = tiny_model(config, seed=3)
    for source in sources(config, 4, seed=1):
        ids = greedy(model, [source])[0]
        cache = model.new_cache(3)
        start(model, cache, [2, 0], [source, [4, 5, 6, config.eos_id]])
        model.decode_step(cache, torch.tensor([2, 0]), torch.tensor([-1, -1]))
        aligned = align(model, cache, 2, ids)
        assert len(aligned) == len(ids)
        assert all(0 <= at < max(len(source) - 1, 1) for at in aligned)
        alone = model.new_cache(1)
        start(model, alone, [0], [source])
        assert align(model, alone, 0, ids) == aligned


@torch.inference_mode()
def test_it_follows_the_attention_of_the_middle_layer() -> None:
    """With a cross attention that looks for position 1 only, everything is aligned to it."""
    model = tiny_model(VARIANTS["pre attention"])
    source = [7, 8, 9, model.config.eos_id]
    cache = model.new_cache(1)
    start(model, cache, [0], [source])
    middle = len(model.decoder.stack) // 2
    model.decoder.stack[middle].cross_attn.q.weight.zero_()
    model.decoder.stack[middle].cross_attn.q.bias.fill_(1.0)
    cache.cross_k[middle].fill_(0.0)
    cache.cross_k[middle][:, :, 1] = 1.0
    assert align(model, cache, 0, [3, 4, 5]) == [1, 1, 1]
    assert align(model, cache, 0, []) == []
