"""The encoder-decoder itself: encode sources, then decode by single steps or several positions at once.

Decides: how ids become vectors and vectors logits. Must not know: batching policy, stopping, beams, where weights
come from. Invariants: `decode_step` repeated and `verify` over the same ids give the same logits; no row's result
depends on its neighbours.
Shapes: B sources, S source tokens, R rows of the decoder, Q positions a row, V target vocabulary, d = d_model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearsay.nmt.cache import NEVER, SlotCache, Window
from nearsay.nmt.config import ModelConfig
from nearsay.nmt.layers import DecoderLayer, EncoderLayer, final_norm
from nearsay.nmt.linear import Linear, pack, packed_linear


def sincos_table(config: ModelConfig, length: int) -> Tensor:
    """Position vectors [length, d] from position 0, float32: sines in the first half, cosines in the second."""
    half = config.d_model // 2
    if config.positions == "sincos-paper":
        angle = torch.arange(length, dtype=torch.float64, device="cpu")[:, None] / torch.pow(
            10000.0, torch.arange(half, dtype=torch.float64, device="cpu") / half
        )
    else:  # in float32 all the way, as the models that use it were trained
        step = -math.log(10000.0) / (half - 1)
        angle = torch.arange(length, device="cpu").float()[:, None] * torch.exp(
            torch.arange(half, device="cpu").float() * step
        )
    return torch.cat([angle.sin(), angle.cos()], 1).float()


class Encoder(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.stack = tuple(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layers = nn.ModuleList(self.stack)
        self.norm = final_norm(config.d_model, config.encoder_norm_eps, config.encoder_norm)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [B, S, d], bias [B, 1, 1, S] or None: [B, S, d]."""
        for layer in self.stack:
            x = layer.forward(x, bias)
        return x if self.norm is None else self.norm(x)


class Decoder(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.stack = tuple(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layers = nn.ModuleList(self.stack)
        self.norm = final_norm(config.d_model, config.decoder_norm_eps, config.decoder_norm)

    def step(self, x: Tensor, cache: SlotCache, window: Window) -> Tensor:
        """x [R, Q, d]: [R, Q, d]."""
        for number, layer in enumerate(self.stack):
            x = layer.step(x, cache, number, window)
        return x if self.norm is None else self.norm(x)

    def forward(self, x: Tensor, states: Tensor, cross_bias: Tensor | None) -> Tensor:
        """x [B, T, d], states [B, S, d], cross_bias [B, 1, 1, S] or None: [B, T, d]."""
        length = x.shape[1]
        causal = torch.full((length, length), NEVER, device=x.device, dtype=x.dtype).triu(1)
        for layer in self.stack:
            x = layer.forward(x, states, causal, cross_bias)
        return x if self.norm is None else self.norm(x)


class Seq2Seq(nn.Module):
    """An encoder-decoder with the parameters that its config implies."""

    position_table: Tensor
    _packed_output: Tensor | None = None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.src_embedding = nn.Embedding(config.src_vocab_size, config.d_model)
        if not config.tied_embeddings:
            self.trg_embedding = nn.Embedding(config.trg_vocab_size, config.d_model)
        if not config.tied_output:
            self.output = nn.Embedding(config.trg_vocab_size, config.d_model)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(config.trg_vocab_size))
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        length = max(config.source_tokens_max, config.target_tokens_max) + config.position_offset
        if config.positions == "table":
            self.register_buffer("position_table", torch.zeros(length, config.d_model))
        else:
            self.register_buffer("position_table", sincos_table(config, length), persistent=False)

    @property
    def trg_table(self) -> Tensor:
        """Target embeddings [V, d]."""
        return self.src_embedding.weight if self.config.tied_embeddings else self.trg_embedding.weight

    @property
    def output_table(self) -> Tensor:
        """Weights of the last product [V, d]."""
        return self.trg_table if self.config.tied_output else self.output.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.src_embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.src_embedding.weight.device

    def new_cache(
        self, slots: int, source_tokens_max: int | None = None, target_tokens_max: int | None = None
    ) -> SlotCache:
        """A cache on the model's device, in the type that attention is computed in there."""
        dtype = torch.float32 if self.device.type == "cpu" else self.dtype
        return SlotCache(self.config, slots, source_tokens_max, target_tokens_max, self.device, dtype)

    def encode(self, src_ids: Tensor, src_lens: Tensor) -> Tensor:
        """src_ids [B, S] padded with any valid id, src_lens [B] >= 1: states [B, S, d]."""
        positions = self.position_table[self.config.position_offset :][: src_ids.shape[1]]
        x = F.embedding(src_ids, self.src_embedding.weight) * self.config.embedding_scale + positions
        return self.encoder.forward(x, self._source_bias(src_lens, src_ids.shape[1]))

    def _source_bias(self, src_lens: Tensor, length: int) -> Tensor | None:
        """[B, 1, 1, S], or None when no source is padded."""
        if bool((src_lens == length).all()):
            return None
        hidden = torch.arange(length, device=src_lens.device) >= src_lens[:, None]
        bias = torch.zeros(hidden.shape, device=self.device, dtype=self.dtype)
        return bias.masked_fill_(hidden.to(self.device), NEVER)[:, None, None, :]

    def start_source(self, cache: SlotCache, slots: Tensor, states: Tensor, lens: Tensor) -> None:
        """Starts a sequence in each of slots [R] from states [R, S, d] of lens [R] real positions."""
        numbers, length = slots.tolist(), min(states.shape[1], cache.source_tokens_max)
        cache.reset(numbers, lens.tolist())
        for number, layer in enumerate(self.decoder.stack):
            cache.put_cross(number, numbers, *layer.cross_attn.project(states[:, :length]))

    def decode_step(self, cache: SlotCache, slots: Tensor, ids: Tensor) -> Tensor:
        """slots [R], ids [R] the previous target ids (START first): logits [R, V]. Each slot grows by one."""
        return self._advance(cache, slots.tolist(), ids[:, None], [1] * len(slots))[:, 0]

    def verify(self, cache: SlotCache, slots: Tensor, ids: Tensor, lens: Tensor) -> Tensor:
        """As lens[r] decode steps at once. slots [R], ids [R, Q] (the previous id first): logits [R, Q, V].

        Logits past lens[r] mean nothing. Keep a prefix with `cache.rewind(slots, total lengths to keep)`.
        """
        return self._advance(cache, slots.tolist(), ids, lens.tolist())

    def _advance(self, cache: SlotCache, slots: list[int], ids: Tensor, counts: list[int]) -> Tensor:
        window = cache.window(slots, counts)
        x = self.embed_target(ids, window.positions, first=0 in window.base)
        logits = self.logits(self.decoder.step(x, cache, window))
        cache.advance(window)
        return logits

    def embed_target(self, ids: Tensor, positions: Tensor, *, first: bool = True) -> Tensor:
        """ids [R, Q], positions [R, Q] or [Q]: [R, Q, d]. first: some id may be START."""
        config = self.config
        if first and config.start_id >= 0:
            ids = torch.where(ids < 0, config.start_id, ids)
        x = F.embedding(ids.clamp(min=0) if first else ids, self.trg_table) * config.embedding_scale
        if first and config.start_id < 0:
            x = x.masked_fill((ids < 0)[..., None], 0.0)
        return x + self.position_table[positions + config.position_offset]

    def logits(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., V]"""
        bias = self.output_bias if self.config.output_bias else None
        if self._packed_output is not None:
            return packed_linear(x, self._packed_output, bias)
        return F.linear(x, self.output_table, bias)

    def pack(self) -> Seq2Seq:
        """Lays the weights out for serving on a CPU (twice the memory). `train()` goes back."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack()
        self._packed_output = pack(self.output_table)
        return self

    def train(self, mode: bool = True) -> Seq2Seq:
        if mode:
            self._packed_output = None
        super().train(mode)
        return self

    def forward(self, src_ids: Tensor, src_lens: Tensor, trg_ids: Tensor) -> Tensor:
        """Teacher forcing, differentiable. src_ids [B, S], src_lens [B], trg_ids [B, T] from START on: [B, T, V]."""
        states = self.encode(src_ids, src_lens)
        x = self.embed_target(trg_ids, torch.arange(trg_ids.shape[1], device=trg_ids.device))
        return self.logits(self.decoder.forward(x, states, self._source_bias(src_lens, src_ids.shape[1])))
