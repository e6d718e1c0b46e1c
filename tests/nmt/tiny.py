"""Tiny models with random weights, in every variant, and the comparison that "exact" means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import torch
from torch import Tensor

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import Seq2Seq

TIE = 1e-4
"""Two logits closer than this may swap places between two right implementations in float32."""

BASE = ModelConfig(
    d_model=32,
    heads=4,
    encoder_layers=2,
    decoder_layers=2,
    encoder_ffn=48,
    decoder_ffn=40,
    src_vocab_size=61,
    trg_vocab_size=53,
    output_bias=True,
    source_tokens_max=24,
    target_tokens_max=24,
)

VARIANTS: dict[str, ModelConfig] = {
    "post attention": BASE,
    "pre attention": msgspec.structs.replace(
        BASE, encoder_norm="pre", decoder_norm="pre", activation="swish", start_id=3, position_offset=2
    ),
    "post ssru": msgspec.structs.replace(BASE, decoder_kind="ssru", trg_vocab_size=61, tied_embeddings=True),
    "mixed": msgspec.structs.replace(
        BASE, decoder_norm="pre", activation="gelu", positions="table", tied_output=False, scale_embedding=False
    ),
}


def tiny_model(config: ModelConfig, seed: int = 0) -> Seq2Seq:
    """Weights spread enough that translations differ and don't just repeat one token."""
    generator = torch.Generator().manual_seed(seed)
    model = Seq2Seq(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            spread = 0.25 if tensor.dim() == 2 else 0.1
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * spread + ("norm.weight" in name))
    return model.requires_grad_(False).eval()


def sources(config: ModelConfig, count: int, seed: int = 0) -> list[list[int]]:
    """Random sources of lengths 1 .. source_tokens_max, ending in `</s>`."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, config.source_tokens_max + 1, (count,), generator=generator).tolist()
    return [
        [*torch.randint(4, config.src_vocab_size, (length - 1,), generator=generator).tolist(), config.eos_id]
        for length in lengths
    ]


def assert_exact(ours: Sequence[int], theirs: Sequence[int], logits_after: Callable[[Sequence[int]], Tensor]) -> None:
    """Same ids, or the first difference sits where the reference's two best logits tie."""
    if list(ours) == list(theirs):
        return
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    best = logits_after(theirs[:first]).topk(2).values
    assert float(best[0] - best[1]) < TIE, f"differs at {first}: {ours} against {theirs}"
