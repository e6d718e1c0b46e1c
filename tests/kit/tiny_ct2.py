"""A random CTranslate2 model, some 100 KB, and a pair folder around it: what an edge worker finds on a disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec

from tests.kit.tiny_vocab import SENTENCES, make_tiny_vocab, pieces_of

DIM, FFN, HEADS, POSITIONS = 32, 64, 4, 512


def make_tiny_ct2(
    folder: Path,
    vocab_size: int = 120,
    *,
    source: list[str] | None = None,
    target: list[str] | None = None,
    eos_bias: float = 0.0,
    quantization: str | None = "int8",
    seed: int = 0,
) -> Path:
    """Write a model folder. `source` and `target` are the pieces by id (default: made up, `vocab_size` of each).

    Its output is noise, but always the same noise. A large positive `eos_bias` ends every sentence at once, a large
    negative one none.
    """
    made_up = ["</s>", "<unk>", *(f"▁w{i}" for i in range(vocab_size - 2))]
    source, target = source or made_up, target or made_up
    rng = np.random.default_rng(seed)
    spec = TransformerSpec.from_config(
        num_layers=(1, 1), num_heads=HEADS, pre_norm=True, activation=common_spec.Activation.RELU
    )
    _fill(spec, rng, len(source), len(target))
    spec.decoder.projection.bias[0] = eos_bias
    spec.config.decoder_start_token = spec.config.eos_token = spec.config.bos_token = "</s>"
    spec.config.add_source_eos = spec.config.add_source_bos = False
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return folder


def make_tiny_pair(
    folder: Path,
    *,
    source: str = "en",
    target: str = "de",
    version: str = "1",
    sentences: tuple[str, ...] = SENTENCES,
    **model: Any,
) -> Path:
    """A pair folder as in models/: model.toml, both vocabularies and an edge student, with digests."""
    spm = make_tiny_vocab(folder / "source.spm", sentences=sentences)
    (folder / "target.spm").write_bytes(spm.read_bytes())
    pieces = pieces_of(spm)
    make_tiny_ct2(folder / "student", source=pieces, target=pieces, **model)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "model.toml"]
    digests = [f'"{p.relative_to(folder).as_posix()}" = "{hashlib.sha256(p.read_bytes()).hexdigest()}"' for p in files]
    lines = [
        f'source = "{source}"',
        f'target = "{target}"',
        'licence = "CC0-1.0"',
        "[vocab]",
        'source = "source.spm"',
        'target = "target.spm"',
        "[edge]",
        f'id = "{source}-{target}-tiny"',
        f'version = "{version}"',
        'engine = "ctranslate2"',
        'path = "student"',
        "[sha256]",
        *digests,
    ]
    (folder / "model.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _fill(spec: TransformerSpec, rng: np.random.Generator, source_size: int, target_size: int) -> None:
    embeddings = spec.encoder.embeddings[0] if isinstance(spec.encoder.embeddings, list) else spec.encoder.embeddings
    embeddings.weight = _weights(rng, source_size, DIM)
    spec.decoder.embeddings.weight = _weights(rng, target_size, DIM)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = _weights(rng, POSITIONS, DIM)
        _fill_norm(side.layer_norm)
        for layer in side.layer:
            _fill_layer(layer, rng)
    spec.decoder.projection.weight = _weights(rng, target_size, DIM)
    spec.decoder.projection.bias = np.zeros(target_size, dtype=np.float32)


def _fill_layer(layer: Any, rng: np.random.Generator) -> None:
    _fill_attention(layer.self_attention, rng, (3 * DIM, DIM))
    if isinstance(layer, transformer_spec.TransformerDecoderLayerSpec):
        _fill_attention(layer.attention, rng, (DIM, 2 * DIM, DIM))
    _fill_norm(layer.ffn.layer_norm)
    _fill_linear(layer.ffn.linear_0, rng, FFN, DIM)
    _fill_linear(layer.ffn.linear_1, rng, DIM, FFN)


def _fill_attention(attention: Any, rng: np.random.Generator, rows: tuple[int, ...]) -> None:
    _fill_norm(attention.layer_norm)
    for linear, size in zip(attention.linear, rows, strict=True):
        _fill_linear(linear, rng, size, DIM)


def _fill_linear(linear: Any, rng: np.random.Generator, rows: int, columns: int) -> None:
    linear.weight, linear.bias = _weights(rng, rows, columns), np.zeros(rows, dtype=np.float32)


def _fill_norm(norm: Any) -> None:
    norm.gamma, norm.beta = np.ones(DIM, dtype=np.float32), np.zeros(DIM, dtype=np.float32)


def _weights(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.standard_normal((rows, columns), dtype=np.float32) * 0.5
