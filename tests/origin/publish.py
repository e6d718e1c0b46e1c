"""Puts tiny origin models on a disk, as an operator does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights import save_native
from tests.origin import tiny


def version_of(number: int, **fields: object) -> Seq2Seq:
    """A tiny model; each version says something else."""
    made = tiny.model(**fields)  # type: ignore[arg-type]
    with torch.no_grad():
        made.output.weight.copy_(made.output.weight.roll(number, 0))
    return made


def publish(
    folder: Path,
    version: int,
    *,
    network: Seq2Seq | None = None,
    pair: tuple[str, str] = ("en", "de"),
    vocabulary: str = "vocabulary",
    digests: bool = True,
) -> Seq2Seq:
    """Write a pair folder, over what is there, model.toml last. Returns the model."""
    network = network or version_of(version)
    save_native(network, folder / "teacher", "float32")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_text(f"{vocabulary} {name}")
    files = ("source.spm", "target.spm", "teacher/config.json", "teacher/model.safetensors")
    listed = [f'"{name}" = "{hashlib.sha256((folder / name).read_bytes()).hexdigest()}"' for name in files]
    lines = [
        f'source = "{pair[0]}"',
        f'target = "{pair[1]}"',
        '[vocab]\nsource = "source.spm"\ntarget = "target.spm"',
        f'[origin]\nid = "tiny-{pair[1]}"\nversion = "{version}"\nengine = "nearsay"\npath = "teacher"',
        *(["[sha256]", *listed] if digests else []),
    ]
    (folder / "model.toml").write_text("\n".join(lines) + "\n")
    return network
