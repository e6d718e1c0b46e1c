"""Our own model folder: config.json and model.safetensors, float or int8.

An int8 matrix `name` comes with `name.scale`: float32, one a row, or one for all.
Invariant: `read_native(save_native(...))` gives the same config and, at "float32" or for weights that were int8
already, the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights.errors import WeightsError
from nearsay.nmt.weights.quantised import Quantised, Weight, quantise, to_float
from nearsay.nmt.weights.tensors import read_tensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SCALE = ".scale"

Precision = Literal["int8", "bf16", "float32", "kept"]
FLOAT_TYPES = {"bf16": torch.bfloat16, "float32": torch.float32}


def save_native(
    model: Seq2Seq | tuple[ModelConfig, Mapping[str, Weight]], folder: Path, precision: Precision = "int8"
) -> None:
    """Writes a model, or a config with weights under our names, into `folder`.

    "int8" keeps weights that are int8 already as they are and quantises the other matrices by row; vectors stay
    float32. "bf16" and "float32" store everything as that. "kept" keeps int8 weights and stores the others as float32:
    for training, which must not lose a borrowed part's own int8 values.
    """
    if isinstance(model, Seq2Seq):
        config, weights = model.config, dict[str, Weight](model.state_dict())
    else:
        config, weights = model[0], dict(model[1])
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if precision in FLOAT_TYPES:
            stored[name] = to_float(weight).to(FLOAT_TYPES[precision])
        elif isinstance(weight, Quantised) or (weight.dim() == 2 and precision == "int8"):
            kept = weight if isinstance(weight, Quantised) else quantise(weight)
            stored[name], stored[name + SCALE] = kept.values, kept.scale
        else:
            stored[name] = weight.float()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=1) + b"\n")
    save_file({name: t.detach().cpu().contiguous() for name, t in stored.items()}, folder / WEIGHTS_FILE)


def read_native_config(folder: Path) -> ModelConfig:
    """The config alone. Raises WeightsError."""
    try:
        return msgspec.json.decode((folder / CONFIG_FILE).read_bytes(), type=ModelConfig)
    except (OSError, msgspec.DecodeError) as error:
        raise WeightsError(f"{folder.name}: {error}") from error


def read_native(folder: Path) -> tuple[ModelConfig, dict[str, Weight]]:
    """Config and weights. Raises WeightsError when a file is missing, broken or of another shape."""
    config = read_native_config(folder)
    try:
        stored = read_tensors(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{folder.name}: {error}") from error
    weights: dict[str, Weight] = {}
    for name, tensor in stored.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in stored:
            continue
        if tensor.dtype != torch.int8:
            weights[name] = tensor
        elif name + SCALE not in stored:
            raise WeightsError(f"{folder.name}: {name} is int8 but there is no {name}{SCALE}")
        else:
            weights[name] = Quantised(tensor, stored[name + SCALE].float().expand(tensor.shape[0]))
    return config, weights
