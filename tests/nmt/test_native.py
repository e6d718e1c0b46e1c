from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from nearsay.nmt.weights import (
    Quantised,
    WeightsError,
    load_model,
    quantise,
    read_config,
    read_native,
    read_weights,
    save_native,
)
from tests.nmt.tiny import BASE, VARIANTS, tiny_model


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_comes_back_bit_for_bit(variant: str, tmp_path: Path) -> None:
    model = tiny_model(VARIANTS[variant])
    save_native(model, tmp_path, "float32")
    back = load_model(tmp_path)
    assert back.config == model.config
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_loaded_model_does_not_hang_on_its_file(tmp_path: Path) -> None:
    """Somebody publishes another version over it, in place."""
    model = tiny_model(BASE)
    save_native(model, tmp_path, "float32")
    back = load_model(tmp_path)
    file = tmp_path / "model.safetensors"
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size))
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())


def test_the_config_alone(tmp_path: Path) -> None:
    save_native(tiny_model(BASE), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert read_config(tmp_path) == BASE
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError):
        read_config(tmp_path)


def test_bf16_halves_and_rounds_once(tmp_path: Path) -> None:
    model = tiny_model(BASE)
    save_native(model, tmp_path, "bf16")
    back = load_model(tmp_path)
    assert torch.equal(back.src_embedding.weight, model.src_embedding.weight.bfloat16().float())


def test_int8_is_within_half_a_step_of_each_row_and_stable(tmp_path: Path) -> None:
    model = tiny_model(BASE)
    save_native(model, tmp_path / "a")
    config, weights = read_native(tmp_path / "a")
    kept = weights["encoder.layers.0.ffn.fc1.weight"]
    assert isinstance(kept, Quantised)
    error = (kept.dequantise() - model.encoder.stack[0].ffn.fc1.weight).abs()
    assert bool((error <= kept.scale[:, None] * 0.500001).all())
    assert torch.equal(torch.as_tensor(weights["output_bias"]), model.output_bias)
    save_native((config, weights), tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_kept_weights_come_back_as_they_were(tmp_path: Path) -> None:
    config, weights = tiny_model(BASE).config, dict(tiny_model(BASE).state_dict())
    mixed = {**weights, "src_embedding.weight": quantise(weights["src_embedding.weight"])}
    save_native((config, mixed), tmp_path, "kept")
    _, back = read_native(tmp_path)
    borrowed, fc1 = back["src_embedding.weight"], back["encoder.layers.0.ffn.fc1.weight"]
    assert isinstance(borrowed, Quantised) and isinstance(fc1, torch.Tensor)
    assert torch.equal(borrowed.values, mixed["src_embedding.weight"].values)
    assert torch.equal(fc1, weights["encoder.layers.0.ffn.fc1.weight"])


def test_one_scale_for_all_rows_is_read_too(tmp_path: Path) -> None:
    save_native(tiny_model(BASE), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["src_embedding.weight.scale"] = torch.tensor([0.5])
    save_file(tensors, tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path).src_embedding.weight, tensors["src_embedding.weight"].float() * 0.5)


def test_a_row_of_zeros_has_a_scale() -> None:
    assert torch.equal(quantise(torch.zeros(2, 3)).dequantise(), torch.zeros(2, 3))


def test_broken_folders_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="neither"):
        load_model(tmp_path)
    save_native(tiny_model(BASE), tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    whole = weights.read_bytes()

    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError):
        read_weights(tmp_path)

    tensors = load_file_from(whole, tmp_path)
    del tensors["src_embedding.weight.scale"]
    save_file(tensors, weights)
    with pytest.raises(WeightsError, match=r"no src_embedding\.weight\.scale"):
        read_weights(tmp_path)

    weights.write_bytes(whole)
    config.write_bytes(msgspec.json.encode(msgspec.structs.replace(BASE, decoder_ffn=41)))
    with pytest.raises(WeightsError, match="size mismatch"):
        load_model(tmp_path)
    config.write_bytes(msgspec.json.encode({**msgspec.to_builtins(BASE), "dropout": 0.1}))
    with pytest.raises(WeightsError, match="dropout"):
        load_model(tmp_path)


def load_file_from(data: bytes, folder: Path) -> dict[str, torch.Tensor]:
    (folder / "whole").write_bytes(data)
    return load_file(folder / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "multiple of heads"),
        ({"tied_embeddings": True}, "one size"),
        ({"decoder_layers": 0}, "at least 1"),
        ({"suppressed_ids": (53,)}, "special id"),
    ],
)
def test_impossible_configs(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(BASE, **changes)
