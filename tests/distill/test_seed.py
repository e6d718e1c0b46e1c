from __future__ import annotations

import torch
from torch import Tensor

from nearsay.distill.seed import count_layers, decoder_weights, pick_rows
from nearsay.nmt.weights.load import build_model
from nearsay.nmt.weights.quantised import Quantised, quantise
from tests.distill.kit import toy_config, toy_network


def taken_apart(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """A decoder under the names of a decoder file: each projection apart."""
    apart = {"decoder.emb.weight": weights["trg_embedding.weight"]}
    for kind in ("weight", "bias"):
        apart[f"decoder.layer_norm.{kind}"] = weights[f"decoder.norm.{kind}"]
        for n in range(layers):
            ours = f"decoder.layers.{n}"
            for name, parts in (("self_attn.qkv", "qkv"), ("cross_attn.q", "q"), ("cross_attn.kv", "kv")):
                theirs = "self_attn" if name.startswith("self") else "encoder_attn"
                chunks = weights[f"{ours}.{name}.{kind}"].chunk(len(parts))
                apart |= {f"{ours}.{theirs}.{p}_proj.{kind}": c for p, c in zip(parts, chunks, strict=True)}
            apart[f"{ours}.self_attn.out_proj.{kind}"] = weights[f"{ours}.self_attn.out.{kind}"]
            apart[f"{ours}.encoder_attn.out_proj.{kind}"] = weights[f"{ours}.cross_attn.out.{kind}"]
            apart |= {f"{ours}.{fc}.{kind}": weights[f"{ours}.ffn.{fc}.{kind}"] for fc in ("fc1", "fc2")}
            for norm, named in (("self", "self_attn"), ("cross", "encoder_attn"), ("ffn", "final")):
                apart[f"{ours}.{named}_layer_norm.{kind}"] = weights[f"{ours}.{norm}_norm.{kind}"]
    return apart


def test_a_decoder_file_becomes_the_same_decoder() -> None:
    model = toy_network(toy_config())
    weights = dict(model.state_dict())
    apart = taken_apart(weights, 2)
    assert count_layers(apart) == 2
    again = weights | decoder_weights(apart)
    assert set(again) == set(weights)
    assert all(torch.equal(build_model(model.config, again).state_dict()[n], t) for n, t in weights.items())


def test_rows_are_picked_from_int8_without_loss() -> None:
    whole = quantise(torch.randn(5, 4))
    picked = pick_rows(whole, [4, 0, 4])
    assert isinstance(picked, Quantised)
    assert torch.equal(picked.dequantise(), whole.dequantise()[[4, 0, 4]])
