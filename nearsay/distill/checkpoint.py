"""A training run's state on disk: weights and progress, no pickles, replaced in one move.

Adam's moments are not kept: after a resume a short warm-up builds them again, at a third of the disk space.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


class CheckpointError(Exception):
    """A checkpoint can't be read; says which and why."""


class Progress(msgspec.Struct, frozen=True):
    """tokens: target tokens learnt from, over all epochs. batch: batches done in the current epoch."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0


def save_checkpoint(
    path: Path, progress: Progress, masters: Mapping[str, Tensor], averages: Mapping[str, Tensor]
) -> None:
    stored = {f"master/{name}": t.contiguous() for name, t in masters.items()}
    stored |= {f"average/{name}": t.contiguous() for name, t in averages.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    save_file(stored, fresh, metadata={"progress": msgspec.json.encode(progress).decode()})
    os.replace(fresh, path)


def load_checkpoint(path: Path) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor]]:
    """Progress, masters and averages. Raises CheckpointError."""
    try:
        with safe_open(path, "pt") as file:
            progress = msgspec.json.decode(file.metadata()["progress"], type=Progress)
            sides: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
            for key in file.keys():  # noqa: SIM118 (not a dict)
                kind, _, name = key.partition("/")
                sides[0 if kind == "master" else 1][name] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{path.name}: {error}") from error
    return progress, *sides
