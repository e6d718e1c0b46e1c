"""How much memory a model takes, known from its config alone: nothing is allocated to find out.

Weights and caches are built on torch's meta device, so that their shapes stand in one place, where they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from nearsay.nmt.cache import SlotCache
from nearsay.nmt.config import ModelConfig
from nearsay.nmt.linear import PACKABLE, Linear
from nearsay.nmt.transformer import Seq2Seq

STEP_TOKENS = 512  # that newcomers bring into a step, beside a token of every slot: each has a row of logits
CUDA_SHARE = 0.9  # of a GPU's memory that models may take, if the operator says nothing


def footprint_bytes(config: ModelConfig, slots: int, dtype: torch.dtype, device: str) -> int:
    """Weights, twice where they are packed beside (`Seq2Seq.pack`); the caches of all slots; the logits of a step."""
    with torch.device("meta"):
        model = Seq2Seq(config).to(dtype)
    cache = SlotCache(config, slots, device="meta", dtype=torch.float32 if device == "cpu" else dtype)
    logits = 4 * config.trg_vocab_size * (slots + STEP_TOKENS)
    packed = sum(map(_bytes, _packed(model))) if device == "cpu" and dtype in PACKABLE else 0
    return sum(map(_bytes, chain(model.parameters(), model.buffers()))) + packed + cache_bytes(cache) + logits


def cache_bytes(cache: SlotCache) -> int:
    """What a cache's tables take."""
    tables = chain(cache.self_k, cache.self_v, cache.state, cache.cross_k, cache.cross_v)
    return sum(map(_bytes, tables)) + _bytes(cache.cross_bias)


def _packed(model: Seq2Seq) -> Iterator[Tensor]:
    yield from (module.weight for module in model.modules() if isinstance(module, Linear))
    yield model.output_table


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
