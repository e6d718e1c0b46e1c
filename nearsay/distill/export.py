"""Writes a trained network as a CTranslate2 model folder.

Decides: which of our tensors goes where in CTranslate2's layout. Must not know how the tensors were made.
Invariant: the float32 export translates exactly as the network does in torch (tests hold it to that).
CTranslate2's own position table has other frequencies than ours, so ours is stored in the model.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import sincos_table
from nearsay.nmt.weights.quantised import Weight, to_float

Weights = Mapping[str, np.ndarray[Any, Any]]
Quantization = Literal["float32", "int8"]
POSITIONS_STORED = 512  # longer inputs are split before they reach a model


class ExportError(Exception):
    """The network can't be written in the wanted form; says why."""


def export_ctranslate2(
    tensors: Mapping[str, Weight],
    config: ModelConfig,
    folder: Path,
    *,
    src_pieces: Sequence[str],
    trg_pieces: Sequence[str],
    quantization: Quantization = "int8",
) -> None:
    """Writes `folder` (replaced when it exists) with model.bin, config.json and the two vocabularies.

    Raises ExportError when a vocabulary doesn't fit the tensors.
    """
    sides = (("source", src_pieces, config.src_vocab_size), ("target", trg_pieces, config.trg_vocab_size))
    for side, pieces, size in sides:
        if len(pieces) != size:
            raise ExportError(f"the {side} vocabulary has {len(pieces)} pieces, the network {size}")
    if config.decoder_kind != "attention" or not config.tied_output or config.output_bias:
        raise ExportError("only attention decoders with a tied output and no bias are exported")
    weights = {name: to_float(weight).detach().float().cpu().numpy() for name, weight in tensors.items()}
    spec = _spec(weights, config)
    spec.register_source_vocabulary(list(src_pieces))
    spec.register_target_vocabulary(list(trg_pieces))
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = trg_pieces[config.eos_id]
    spec.config.unk_token = trg_pieces[config.unk_id]
    spec.config.layer_norm_epsilon = config.decoder_norm_eps
    spec.config.add_source_bos = False
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=quantization)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def _spec(weights: Weights, config: ModelConfig) -> TransformerSpec:
    activation = common_spec.Activation.RELU
    encoder = TransformerEncoderSpec(
        config.encoder_layers, config.heads, pre_norm=config.encoder_norm == "pre", activation=activation
    )
    decoder = TransformerDecoderSpec(
        config.decoder_layers, config.heads, pre_norm=config.decoder_norm == "pre", activation=activation
    )
    encoder.embeddings[0].weight = weights["src_embedding.weight"]
    decoder.embeddings.weight = decoder.projection.weight = weights["trg_embedding.weight"]
    decoder.start_from_zero_embedding = True
    table = sincos_table(config, POSITIONS_STORED).numpy()
    for name, spec in (("encoder", encoder), ("decoder", decoder)):
        spec.position_encodings.encodings = table
        if hasattr(spec, "layer_norm"):
            _norm(spec.layer_norm, weights, f"{name}.norm")
        for index, layer in enumerate(spec.layer):
            _layer(layer, weights, f"{name}.layers.{index}")
    return TransformerSpec(encoder, decoder)


def _layer(layer: Any, weights: Weights, name: str) -> None:
    _linear(layer.self_attention.linear[0], weights, f"{name}.self_attn.qkv")
    _linear(layer.self_attention.linear[1], weights, f"{name}.self_attn.out")
    _norm(layer.self_attention.layer_norm, weights, f"{name}.self_norm")
    if hasattr(layer, "attention"):
        for linear, part in zip(layer.attention.linear, ("q", "kv", "out"), strict=True):
            _linear(linear, weights, f"{name}.cross_attn.{part}")
        _norm(layer.attention.layer_norm, weights, f"{name}.cross_norm")
    _linear(layer.ffn.linear_0, weights, f"{name}.ffn.fc1")
    _linear(layer.ffn.linear_1, weights, f"{name}.ffn.fc2")
    _norm(layer.ffn.layer_norm, weights, f"{name}.ffn_norm")


def _linear(linear: Any, weights: Weights, name: str) -> None:
    linear.weight, linear.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _norm(norm: Any, weights: Weights, name: str) -> None:
    norm.gamma, norm.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
