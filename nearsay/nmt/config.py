"""What a translation model is made of: one frozen record that covers every family we load.

Decides: the shape and the variant of each part (norm placement, positions, activation, decoder kind, tied tables).
Must not know: where weights come from (weights/), how they are run (transformer.py), or any tensor.
Invariant: two models with equal configs have equal parameter names and shapes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

START = -1
"""In a tensor of target ids: the decoder's first input, whatever it is for the model at hand."""

Norm = Literal["pre", "post"]
Activation = Literal["relu", "swish", "gelu"]
Positions = Literal["sincos-t2t", "sincos-paper", "table"]
DecoderKind = Literal["attention", "ssru"]


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shape and variant of an encoder-decoder.

    positions: "sincos-t2t" has frequencies 10000^(-i/(d/2-1)) as in Tensor2Tensor, Marian and fairseq, "sincos-paper"
    10000^(-i/(d/2)) as in Vaswani et al. (2017) and Hugging Face's Marian; both put all sines before all cosines.
    "table" is stored with the weights. The first token has position `position_offset`.
    decoder_kind: "ssru" replaces self-attention by the Simpler Simple Recurrent Unit (Kim et al., 2019).
    start_id: what the decoder reads for START, or START itself for a vector of zeros.
    prefix_ids: target ids that always follow START and are not part of the translation (a language code, say).
    suppressed_ids: target ids that are never generated.
    forced_eos: the last token that the length limit allows is `</s>`.
    """

    model_type: Literal["nearsay"] = "nearsay"
    d_model: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    encoder_ffn: int
    decoder_ffn: int
    encoder_norm: Norm = "post"
    decoder_norm: Norm = "post"
    decoder_kind: DecoderKind = "attention"
    activation: Activation = "relu"
    positions: Positions = "sincos-t2t"
    position_offset: int = 0
    scale_embedding: bool = True
    encoder_norm_eps: float = 1e-5
    decoder_norm_eps: float = 1e-5
    src_vocab_size: int
    trg_vocab_size: int
    tied_embeddings: bool = False
    tied_output: bool = True
    output_bias: bool = False
    start_id: int = START
    prefix_ids: tuple[int, ...] = ()
    eos_id: int = 0
    pad_id: int = 0
    unk_id: int = 1
    suppressed_ids: tuple[int, ...] = ()
    forced_eos: bool = False
    source_tokens_max: int = 256
    target_tokens_max: int = 256

    def __post_init__(self) -> None:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model {self.d_model} must be even and a multiple of heads {self.heads}")
        if self.tied_embeddings and self.src_vocab_size != self.trg_vocab_size:
            raise ValueError("tied embeddings need vocabularies of one size")
        if min(self.encoder_layers, self.decoder_layers, self.source_tokens_max, self.target_tokens_max) < 1:
            raise ValueError("layers and token limits must be at least 1")
        named = (self.start_id, self.eos_id, self.pad_id, *self.prefix_ids, *self.suppressed_ids)
        if not all(START <= i < self.trg_vocab_size for i in named):
            raise ValueError("a special id lies outside the target vocabulary")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads

    @property
    def embedding_scale(self) -> float:
        return float(self.d_model) ** 0.5 if self.scale_embedding else 1.0
