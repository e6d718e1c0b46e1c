"""One door for weights of every format.

Decides: which reader a path needs. Invariant: a loaded model has exactly the parameters its config implies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import Seq2Seq, sincos_table
from nearsay.nmt.weights.errors import WeightsError
from nearsay.nmt.weights.hf import FAMILIES, read_hf, read_hf_config, refuse_pickle
from nearsay.nmt.weights.marian import read_marian
from nearsay.nmt.weights.native import CONFIG_FILE, read_native, read_native_config
from nearsay.nmt.weights.quantised import Weight, to_float


def load_model(path: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Seq2Seq:
    """A model packed for serving (to train one, use `build_model`). Raises WeightsError.

    path: a Marian `.bin` file, or a folder with config.json and safetensors (ours, or Hugging Face's Marian or M2M100).
    """
    config, weights = read_weights(path)
    return build_model(config, weights, device=device, dtype=dtype).pack()


def read_config(path: Path) -> ModelConfig:
    """What a model at a path is made of, without its weights where that saves anything. Raises WeightsError."""
    if path.is_file():
        return read_weights(path)[0]
    return read_native_config(path) if _kind(path) == "nearsay" else read_hf_config(path)


def read_weights(path: Path) -> tuple[ModelConfig, dict[str, Weight]]:
    """Config and weights under our names, int8 where the file has int8. Raises WeightsError."""
    if path.is_file():
        refuse_pickle(path)
        return read_marian(path)
    return read_native(path) if _kind(path) == "nearsay" else read_hf(path)


def _kind(folder: Path) -> str:
    """The `model_type` of a folder, one that we know."""
    try:
        kind = json.loads((folder / CONFIG_FILE).read_bytes()).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise WeightsError(f"{folder.name} is neither a Marian file nor a folder with a {CONFIG_FILE}") from error
    if kind != "nearsay" and kind not in FAMILIES:
        raise WeightsError(f"{folder.name}: model_type {kind!r} is not supported")
    return str(kind)


def build_model(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Seq2Seq:
    """A model in evaluation mode. Raises WeightsError when names or shapes aren't those that the config implies."""
    with torch.device("meta"):  # no memory and no random numbers for what is replaced at once
        model = Seq2Seq(config)
    if config.positions != "table":
        length = model.position_table.shape[0]
        model.register_buffer("position_table", sincos_table(config, length), persistent=False)
    try:
        model.load_state_dict({name: to_float(weight).to(dtype) for name, weight in weights.items()}, assign=True)
    except RuntimeError as error:
        raise WeightsError(str(error)) from error
    return model.to(device=device, dtype=dtype).requires_grad_(False).eval()
