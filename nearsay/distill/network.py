"""One training pass through `nearsay.nmt`'s network: teacher forcing over a padded batch, with dropout and gradients.

Decides: where dropout acts and what gets a gradient. The parameters are nmt's own, so a checkpoint serves unchanged;
this file must not know how they are optimised. Attention is plain matrix products: at these lengths the fused CPU
kernel is about three times slower in bf16.
Invariants: no gradient and no dropout in the encoder; position p of the decoder sees target ids before p only; a padded
source position is seen by nobody; with a rate of 0 the pass equals `Seq2Seq.forward`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from nearsay.nmt.cache import NEVER
from nearsay.nmt.layers import DecoderLayer, SelfAttention
from nearsay.nmt.transformer import Seq2Seq

POOL_SIZE = 1 << 24


class DropoutPool:
    """Dropout whose masks are slices of one pool drawn in advance: drawing fresh ones costs a tenth of a CPU step."""

    def __init__(
        self, rate: float, *, seed: int = 0, size: int = POOL_SIZE, dtype: torch.dtype = torch.float32
    ) -> None:
        self.rate, self.size = rate, size
        self._rng = torch.Generator().manual_seed(seed)
        keep = torch.rand(size if rate else 0, generator=self._rng) >= rate
        self._pool = (keep.float() / (1.0 - rate)).to(dtype)

    def to(self, device: torch.device) -> DropoutPool:
        self._pool = self._pool.to(device)
        return self

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape; one slice of the pool a call."""
        count = x.numel()
        if self.rate == 0.0:
            return x
        if count >= self.size:
            return F.dropout(x, self.rate)
        start = int(torch.randint(self.size - count, (1,), generator=self._rng))
        return x * self._pool[start : start + count].view(x.shape)


def decode_states(model: Seq2Seq, src: Tensor, src_lens: Tensor, trg: Tensor, dropout: DropoutPool) -> Tensor:
    """src [B, S], src_lens [B], trg [B, T] the ids to predict: decoder states [B, T, d] for predicting them."""
    with torch.no_grad():
        states = model.encode(src, src_lens)
    hidden = torch.arange(src.shape[1], device=src.device) >= src_lens[:, None]
    padding = torch.zeros(hidden.shape, device=src.device, dtype=states.dtype).masked_fill_(hidden, NEVER)
    length = trg.shape[1]
    causal = torch.full((length, length), NEVER, device=src.device, dtype=states.dtype).triu(1)
    config = model.config
    before = F.embedding(trg[:, :-1], model.trg_table) * config.embedding_scale
    x = F.pad(before, (0, 0, 1, 0))  # [B, T, d]: a zero vector starts
    x = dropout(x + model.position_table[config.position_offset :][:length])
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        x = _decoder_layer(layer, x, states, causal, padding[:, None, None, :], dropout)
    assert model.decoder.norm is not None
    out: Tensor = model.decoder.norm(x)
    return out


def _decoder_layer(
    layer: DecoderLayer, x: Tensor, states: Tensor, causal: Tensor, padding: Tensor, dropout: DropoutPool
) -> Tensor:
    """Pre-norm: x [B, T, d], states [B, S, d], causal [T, T], padding [B, 1, 1, S]: [B, T, d]."""
    attention, cross = layer.self_attn, layer.cross_attn
    assert isinstance(attention, SelfAttention)
    q, k, v = (_split(part, attention.heads) for part in attention.qkv(layer.self_norm(x)).chunk(3, -1))
    x = x + dropout(attention.out(_attend(q, k, v, causal, dropout)))
    q = _split(cross.q(layer.cross_norm(x)), cross.heads)
    k, v = (_split(part, cross.heads) for part in cross.kv(states).chunk(2, -1))
    x = x + dropout(cross.out(_attend(q, k, v, padding, dropout)))
    inner = layer.ffn.activation(layer.ffn.fc1(layer.ffn_norm(x)))
    return x + dropout(layer.ffn.fc2(dropout(inner)))


def _split(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)  # [B, H, L, D]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: DropoutPool) -> Tensor:
    """q [B, H, L, D], k and v [B, H, M, D], mask broadcast to [B, H, L, M]: [B, L, d]."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2) + mask
    mixed = dropout(torch.softmax(scores, dim=-1)) @ v
    return mixed.transpose(1, 2).flatten(2)
