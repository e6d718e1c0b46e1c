"""Reads a safetensors file into memory of its own.

Invariant: nothing read here depends on the file afterwards. Mapped into memory, as `safetensors` does it by itself,
weights change, or the process dies of SIGBUS, when somebody publishes a new version over the file.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load
from torch import Tensor


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors by name. Raises OSError, SafetensorError."""
    return load(path.read_bytes())


def tensor_names(path: Path) -> set[str]:
    """Names of the tensors; nothing else is read. Raises OSError, SafetensorError."""
    with safe_open(path, "pt") as file:
        return set(file.keys())
