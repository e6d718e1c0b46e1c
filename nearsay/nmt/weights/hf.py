"""Reads Hugging Face folders of two families: Marian (OPUS-MT) and M2M100 (M2M100 itself, NLLB-200).

Decides: which of their settings and tensors is which of ours. Only safetensors are read: a pickle runs code.
Invariant: what would change the model's logits and isn't supported is refused by name. Of the generation settings
those that say which ids may come are kept; search settings (beams, penalties) are the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from nearsay.nmt.config import Activation, ModelConfig
from nearsay.nmt.weights.errors import WeightsError
from nearsay.nmt.weights.quantised import Weight
from nearsay.nmt.weights.tensors import read_tensors, tensor_names

FAMILIES = ("marian", "m2m_100")
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
ID_RULES = ("bad_words_ids", "suppress_tokens", "forced_bos_token_id", "forced_eos_token_id")
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

Settings = Mapping[str, Any]  # the JSON of config.json with generation_config.json over it


def read_hf(folder: Path) -> tuple[ModelConfig, dict[str, Weight]]:
    """Config and weights under our names. Raises WeightsError."""
    with _foreign_errors(folder):
        tensors = {name: tensor for file in _files(folder) for name, tensor in read_tensors(file).items()}
        config = _config(_settings(folder), tensors, folder.name)
        return config, _weights(tensors, config)


def read_hf_config(folder: Path) -> ModelConfig:
    """The config alone; of the weights only the names are read. Raises WeightsError."""
    with _foreign_errors(folder):
        names = {name for file in _files(folder) for name in tensor_names(file)}
        return _config(_settings(folder), names, folder.name)


@contextmanager
def _foreign_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{folder.name}: a setting or tensor is missing or of a wrong kind: {error}") from error
    except (OSError, ValueError, SafetensorError) as error:
        raise error if isinstance(error, WeightsError) else WeightsError(f"{folder.name}: {error}") from error


def _settings(folder: Path) -> Settings:
    """config.json; where there is a generation_config.json, that alone says which ids may come, as for transformers."""
    settings, generation = _json(folder / "config.json"), _json(folder / "generation_config.json", optional=True)
    if generation:
        settings = {key: value for key, value in settings.items() if key not in ID_RULES}
    return settings | {key: value for key, value in generation.items() if value is not None}


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise WeightsError(f"{path.name} holds no object")
    return value


def refuse_pickle(path: Path) -> None:
    """Raises WeightsError for a file that has a pickle's name or beginning."""
    if path.name.startswith("pytorch_model") or path.suffix in PICKLE_SUFFIXES[1:] or _begins_like_pickle(path):
        raise WeightsError(
            f"{path.name} is a pickle, which can run code when it is read. Convert it to safetensors where you trust"
            " it: transformers' AutoModelForSeq2SeqLM.from_pretrained(folder).save_pretrained(folder)"
        )


def _begins_like_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2)[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def _files(folder: Path) -> list[Path]:
    """The one file of weights, or the shards that an index names."""
    if (folder / WEIGHTS_FILE).exists():
        return [folder / WEIGHTS_FILE]
    if not (folder / INDEX_FILE).exists():
        for path in sorted(folder.iterdir()):
            if path.suffix in PICKLE_SUFFIXES:
                refuse_pickle(path)
        raise WeightsError(f"{folder.name} has no {WEIGHTS_FILE}")
    shards = sorted(set(_json(folder / INDEX_FILE)["weight_map"].values()))
    for shard in shards:
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise WeightsError(f"{INDEX_FILE} names {shard!r}, which isn't a safetensors file in the folder")
    return [folder / shard for shard in shards]


def _config(settings: Settings, tensors: Container[str], name: str) -> ModelConfig:
    marian = settings["model_type"] == "marian"
    activation = settings["activation_function"]
    if activation not in ACTIVATIONS:
        raise WeightsError(f"{name}: activation {activation!r} is not supported")
    if settings["encoder_attention_heads"] != settings["decoder_attention_heads"]:
        raise WeightsError(f"{name}: encoder and decoder have different numbers of heads")
    shared = not marian or settings.get("share_encoder_decoder_embeddings", True)
    src_vocab, tokens_max = settings["vocab_size"], settings["max_position_embeddings"]
    return ModelConfig(
        d_model=settings["d_model"],
        heads=settings["encoder_attention_heads"],
        encoder_layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        encoder_ffn=settings["encoder_ffn_dim"],
        decoder_ffn=settings["decoder_ffn_dim"],
        encoder_norm="post" if marian else "pre",
        decoder_norm="post" if marian else "pre",
        activation=ACTIVATIONS[activation],
        positions=("table" if POSITIONS[0] in tensors else "sincos-paper") if marian else "sincos-t2t",
        position_offset=0 if marian else settings["pad_token_id"] + 1,
        scale_embedding=settings.get("scale_embedding", not marian),
        src_vocab_size=src_vocab,
        trg_vocab_size=src_vocab if shared else settings.get("decoder_vocab_size") or src_vocab,
        tied_embeddings=shared,
        tied_output=settings.get("tie_word_embeddings", True),
        output_bias="final_logits_bias" in tensors,
        start_id=settings["decoder_start_token_id"],
        prefix_ids=() if marian else _ids(settings, "forced_bos_token_id"),
        eos_id=_ids(settings, "eos_token_id")[0],
        pad_id=settings["pad_token_id"],
        suppressed_ids=_suppressed(settings, marian),
        forced_eos=bool(_ids(settings, "forced_eos_token_id")),
        source_tokens_max=tokens_max,
        target_tokens_max=tokens_max,
    )


def _ids(settings: Settings, key: str) -> tuple[int, ...]:
    """A setting that may be absent, an id, or a list of one."""
    value = settings.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if len(values) > 1:
        raise WeightsError(f"{key} has {len(values)} values; one is supported")
    return tuple(values)


def _suppressed(settings: Settings, marian: bool) -> tuple[int, ...]:
    """Ids that are never generated. M2M100 has no position for `<pad>`, so nothing sensible could follow it."""
    words = settings.get("bad_words_ids") or []
    if any(len(word) != 1 for word in words):
        raise WeightsError("bad_words_ids of several tokens are not supported")
    wanted = {word[0] for word in words} | set(settings.get("suppress_tokens") or [])
    return tuple(sorted(wanted if marian else wanted | {settings["pad_token_id"]}))


def _weights(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Weight]:
    def first(*names: str) -> Tensor:
        """Tied tensors are stored once, under any of their names."""
        return next((tensors[name] for name in names if name in tensors), tensors[names[0]])

    encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    weights: dict[str, Weight] = {}
    if config.tied_embeddings:
        weights["src_embedding.weight"] = first("model.shared.weight", encoder, decoder, "lm_head.weight")
    else:
        weights["src_embedding.weight"] = first(encoder)
        weights["trg_embedding.weight"] = first(decoder, "lm_head.weight")
    if not config.tied_output:
        weights["output.weight"] = first("lm_head.weight")
    if config.output_bias:
        weights["output_bias"] = first("final_logits_bias").flatten()
    if config.positions == "table":
        if not torch.equal(first(POSITIONS[0]), tensors.get(POSITIONS[1], first(POSITIONS[0]))):
            raise WeightsError("the encoder's and the decoder's position tables differ")
        weights["position_table"] = first(POSITIONS[0])
    for side, layers, norm in (
        ("encoder", config.encoder_layers, config.encoder_norm),
        ("decoder", config.decoder_layers, config.decoder_norm),
    ):
        for n in range(layers):
            weights |= _layer(tensors, f"{side}.layers.{n}", cross=side == "decoder")
        if norm == "pre":
            weights |= _parts(tensors, f"model.{side}", f"{side}.norm", "layer_norm")
    return weights


def _layer(tensors: Mapping[str, Tensor], layer: str, *, cross: bool) -> dict[str, Weight]:
    theirs = f"model.{layer}"
    weights = {
        **_parts(tensors, theirs, f"{layer}.self_attn.qkv", *(f"self_attn.{x}_proj" for x in "qkv")),
        **_parts(tensors, theirs, f"{layer}.self_attn.out", "self_attn.out_proj"),
        **_parts(tensors, theirs, f"{layer}.self_norm", "self_attn_layer_norm"),
        **_parts(tensors, theirs, f"{layer}.ffn.fc1", "fc1"),
        **_parts(tensors, theirs, f"{layer}.ffn.fc2", "fc2"),
        **_parts(tensors, theirs, f"{layer}.ffn_norm", "final_layer_norm"),
    }
    if cross:
        weights |= {
            **_parts(tensors, theirs, f"{layer}.cross_attn.q", "encoder_attn.q_proj"),
            **_parts(tensors, theirs, f"{layer}.cross_attn.kv", "encoder_attn.k_proj", "encoder_attn.v_proj"),
            **_parts(tensors, theirs, f"{layer}.cross_attn.out", "encoder_attn.out_proj"),
            **_parts(tensors, theirs, f"{layer}.cross_norm", "encoder_attn_layer_norm"),
        }
    return weights


def _parts(tensors: Mapping[str, Tensor], theirs: str, ours: str, *names: str) -> dict[str, Weight]:
    """Weight and bias of one of our parts: theirs under each other."""
    return {
        f"{ours}.{kind}": torch.cat([tensors[f"{theirs}.{name}.{kind}"] for name in names])
        for kind in ("weight", "bias")
    }
