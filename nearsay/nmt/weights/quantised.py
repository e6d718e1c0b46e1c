"""int8 weights with one scale a row: what we store, never what we compute with.

Invariant: value[row, col] = int8[row, col] * scale[row], in float32, wherever weights are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Quantised:
    """values: int8 [rows, cols]; scale: float32 [rows]."""

    values: Tensor
    scale: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    def dequantise(self) -> Tensor:
        """float32 [rows, cols]"""
        return self.values.float() * self.scale[:, None]


Weight = Union[Tensor, Quantised]  # noqa: UP007 (a runtime alias)


def quantise(weight: Tensor) -> Quantised:
    """Symmetric int8, one scale a row: the largest magnitude of a row [cols] of weight [rows, cols] becomes 127."""
    weight = weight.float()
    scale = weight.abs().amax(1) / 127.0
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return Quantised((weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale)


def stack(parts: list[Weight]) -> Weight:
    """Row blocks under each other; stays int8 when all parts are."""
    quantised = [p for p in parts if isinstance(p, Quantised)]
    if len(quantised) == len(parts):
        return Quantised(torch.cat([p.values for p in quantised]), torch.cat([p.scale for p in quantised]))
    return torch.cat([to_float(p) for p in parts])


def to_float(weight: Weight) -> Tensor:
    return weight.dequantise() if isinstance(weight, Quantised) else weight
