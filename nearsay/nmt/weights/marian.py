"""Reads Marian's binary models: Firefox Translations students (int8) and float32 models of the same layout.

Decides: which item of the file is which of our parameters. Invariant: int8 weights stay int8, with Marian's scale,
until someone computes with them, so storing them again loses nothing.
File: u64 version, u64 items, four u64 an item (name length, type, dimensions, bytes), all names, all shapes (i32),
u64 padding, the padding, all data. Sizes come from the file: each is checked before it is believed.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nearsay.nmt.config import Activation, DecoderKind, ModelConfig
from nearsay.nmt.weights.errors import WeightsError
from nearsay.nmt.weights.quantised import Quantised, Weight, stack

FLOAT32, INTGEMM8, BYTES = 0x404, 0x4101, 0x101
ITEMS_MAX = 100_000
DIMS_MAX = 8
OPTIONS_ITEM = "special:model.yml"
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "swish", "gelu": "gelu"}

Item = tuple[int, tuple[int, ...], memoryview]  # type, shape, bytes


def read_marian(path: Path) -> tuple[ModelConfig, dict[str, Weight]]:
    """Config and weights under our names. Raises WeightsError when the file isn't a model of a supported shape."""
    try:
        source = _Items(_read_items(path.read_bytes()), path.name)
        config = _config(source)
        return config, _weights(source, config)
    except WeightsError:
        raise
    except (struct.error, OSError, ValueError, RuntimeError) as error:  # numpy's and torch's about impossible shapes
        raise WeightsError(f"{path.name} is not a Marian binary model that we can read: {error}") from error


def _read_items(data: bytes) -> dict[str, Item]:
    version, count = struct.unpack_from("<QQ", data, 0)
    if version != 1 or count > ITEMS_MAX:
        raise ValueError(f"version {version} with {count} items")
    headers = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count)]
    at = 16 + 32 * count
    if sum(h[0] for h in headers) > len(data) or any(h[2] > DIMS_MAX for h in headers):
        raise ValueError("names or shapes larger than the file")
    names, shapes = [], []
    for name_bytes, _, _, _ in headers:
        names.append(data[at : at + name_bytes].rstrip(b"\0").decode())
        at += name_bytes
    for _, _, dims, _ in headers:
        shapes.append(struct.unpack_from(f"<{dims}i", data, at))
        if any(size < 0 for size in shapes[-1]):
            raise ValueError("a negative size")
        at += 4 * dims
    at += 8 + struct.unpack_from("<Q", data, at)[0]
    items: dict[str, Item] = {}
    for (_, kind, _, size), name, shape in zip(headers, names, shapes, strict=True):
        if at + size > len(data):
            raise ValueError(f"item {name} ends past the end of the file")
        items[name] = (kind, shape, memoryview(data)[at : at + size])
        at += size
    return items


class _Items:
    """Typed access to the items of one file."""

    def __init__(self, items: dict[str, Item], file: str) -> None:
        self._items = items
        self.file = file

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __getitem__(self, name: str) -> Item:
        if name not in self._items:
            raise WeightsError(f"{self.file} has no item {name}: its network isn't one that we know")
        return self._items[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self[name][1]

    def options(self) -> dict[str, str]:
        """The scalar options of the YAML inside: `key: value` lines, which is all that we need of it."""
        _, _, data = self[OPTIONS_ITEM]
        text = bytes(data).rstrip(b"\0").decode("utf-8", errors="replace")
        found = re.findall(r"^([\w-]+): *(.*?) *$", text, flags=re.MULTILINE)
        return {key: value.strip("\"'") for key, value in found}

    def vector(self, name: str) -> Tensor:
        """A float32 item, flat."""
        kind, shape, data = self[name]
        size = int(np.prod(shape))
        if kind != FLOAT32 or size * 4 > len(data):
            raise WeightsError(f"{self.file}: item {name} should be float32, has type {kind:#x}")
        return torch.from_numpy(np.frombuffer(data, np.float32, size).copy())

    def matrix(self, name: str, *, as_stored: bool = False) -> Weight:
        """A weight as a Linear wants it, [out, in]; an embedding [vocabulary, d] when `as_stored`."""
        kind, shape, data = self[name]
        rows, cols = shape
        if kind == FLOAT32:
            flat = self.vector(name).reshape(rows, cols)
            return flat if as_stored else flat.T.contiguous()
        if kind != INTGEMM8 or rows * cols + 4 > len(data):
            raise WeightsError(
                f"{self.file}: item {name} has type {kind:#x}; float32 or machine-independent int8 wanted"
            )
        # intgemm keeps an int8 matrix transposed already, except for the embeddings.
        out, inner = (rows, cols) if as_stored else (cols, rows)
        values = torch.from_numpy(np.frombuffer(data, np.int8, rows * cols).reshape(out, inner).copy())
        multiplier = np.frombuffer(data, np.float32, 1, offset=rows * cols)[0]
        return Quantised(values, torch.full((out,), float(np.float32(1) / multiplier)))


def _config(source: _Items) -> ModelConfig:
    options = source.options()

    def option(key: str, *allowed: str, default: str = "") -> str:
        value = options.get(key, default)
        if allowed and value not in allowed:
            raise WeightsError(f"{source.file}: option {key}: {value!r} is not supported (only {', '.join(allowed)})")
        return value

    option("type", "transformer")
    option("transformer-preprocess", "")
    option("transformer-postprocess", "dan", "an")
    option("transformer-postprocess-top", "", "d")
    option("transformer-train-position-embeddings", "false", default="false")
    option("transformer-ffn-depth", "2", default="2")
    option("transformer-no-projection", "false", default="false")
    option("transformer-tied-layers", "[]", "", default="[]")
    rnn = option("transformer-decoder-autoreg", "rnn", "self-attention", default="self-attention") == "rnn"
    if rnn:
        option("dec-cell", "ssru")
    kind: DecoderKind = "ssru" if rnn else "attention"
    tied = "Wemb" in source
    src_vocab, d_model = source.shape("Wemb" if tied else "encoder_Wemb")
    trg_vocab, _ = source.shape("Wemb" if tied else "decoder_Wemb")
    return ModelConfig(
        d_model=d_model,
        heads=int(option("transformer-heads")),
        encoder_layers=int(option("enc-depth")),
        decoder_layers=int(option("dec-depth")),
        encoder_ffn=source.shape("encoder_l1_ffn_W1")[1],
        decoder_ffn=source.shape("decoder_l1_ffn_W1")[1],
        decoder_kind=kind,
        activation=ACTIVATIONS[option("transformer-ffn-activation", *ACTIVATIONS)],
        encoder_norm_eps=1e-6,
        decoder_norm_eps=1e-6,
        src_vocab_size=src_vocab,
        trg_vocab_size=trg_vocab,
        tied_embeddings=tied,
        tied_output="decoder_ff_logit_out_W" not in source,
        output_bias="decoder_ff_logit_out_b" in source,
    )


def _weights(source: _Items, config: ModelConfig) -> dict[str, Weight]:
    weights: dict[str, Weight] = {}
    if config.tied_embeddings:
        weights["src_embedding.weight"] = source.matrix("Wemb", as_stored=True)
    else:
        weights["src_embedding.weight"] = source.matrix("encoder_Wemb", as_stored=True)
        weights["trg_embedding.weight"] = source.matrix("decoder_Wemb", as_stored=True)
    if not config.tied_output:
        weights["output.weight"] = source.matrix("decoder_ff_logit_out_W")
    if config.output_bias:
        weights["output_bias"] = source.vector("decoder_ff_logit_out_b")
    for n in range(config.encoder_layers):
        weights |= _self_attention(source, f"encoder_l{n + 1}_self", f"encoder.layers.{n}")
        weights |= _feed_forward(source, f"encoder_l{n + 1}_ffn", f"encoder.layers.{n}")
    for n in range(config.decoder_layers):
        theirs, ours = f"decoder_l{n + 1}", f"decoder.layers.{n}"
        if config.decoder_kind == "ssru":
            weights |= _ssru(source, f"{theirs}_rnn", ours)
        else:
            weights |= _self_attention(source, f"{theirs}_self", ours)
        weights |= _cross_attention(source, f"{theirs}_context", ours)
        weights |= _feed_forward(source, f"{theirs}_ffn", ours)
    return weights


def _norm(source: _Items, theirs: str, ours: str) -> dict[str, Weight]:
    return {f"{ours}.weight": source.vector(f"{theirs}_ln_scale"), f"{ours}.bias": source.vector(f"{theirs}_ln_bias")}


def _linear(source: _Items, theirs: str, ours: str, names: str) -> dict[str, Weight]:
    """The row blocks W<name> and b<name> of one product."""
    return {
        f"{ours}.weight": stack([source.matrix(f"{theirs}_W{name}") for name in names]),
        f"{ours}.bias": torch.cat([source.vector(f"{theirs}_b{name}") for name in names]),
    }


def _self_attention(source: _Items, theirs: str, ours: str) -> dict[str, Weight]:
    return {
        **_linear(source, theirs, f"{ours}.self_attn.qkv", "qkv"),
        **_linear(source, theirs, f"{ours}.self_attn.out", "o"),
        **_norm(source, f"{theirs}_Wo", f"{ours}.self_norm"),
    }


def _cross_attention(source: _Items, theirs: str, ours: str) -> dict[str, Weight]:
    return {
        **_linear(source, theirs, f"{ours}.cross_attn.q", "q"),
        **_linear(source, theirs, f"{ours}.cross_attn.kv", "kv"),
        **_linear(source, theirs, f"{ours}.cross_attn.out", "o"),
        **_norm(source, f"{theirs}_Wo", f"{ours}.cross_norm"),
    }


def _feed_forward(source: _Items, theirs: str, ours: str) -> dict[str, Weight]:
    return {
        **_linear(source, theirs, f"{ours}.ffn.fc1", "1"),
        **_linear(source, theirs, f"{ours}.ffn.fc2", "2"),
        **_norm(source, f"{theirs}_ffn", f"{ours}.ffn_norm"),
    }


def _ssru(source: _Items, theirs: str, ours: str) -> dict[str, Weight]:
    forget_bias = source.vector(f"{theirs}_bf")
    return {
        f"{ours}.self_attn.gates.weight": stack([source.matrix(f"{theirs}_W"), source.matrix(f"{theirs}_Wf")]),
        f"{ours}.self_attn.gates.bias": torch.cat([torch.zeros_like(forget_bias), forget_bias]),
        **_norm(source, f"{theirs}_ffn", f"{ours}.self_norm"),
    }
