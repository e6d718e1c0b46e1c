"""A pair of tiny models for real processes, of which there can be many versions."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import torch

from nearsay.nmt.weights import save_native
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.kit.tiny_vocab import SENTENCES, pieces_of
from tests.origin import tiny

ORIGIN = """
[origin]
id = "en-de-tiny-teacher"
version = "{version}"
engine = "nearsay"
path = "teacher"

[sha256]
"""


def publish(folder: Path, version: int, *, sentences: tuple[str, ...] = SENTENCES) -> None:
    """Write a version over what is in the folder, file by file and in place, model.toml last: a careless operator.
    `sentences` make its vocabularies."""
    with tempfile.TemporaryDirectory() as scratch:
        made = _make(Path(scratch) / "en-de", version, sentences)
        for file in sorted(made.rglob("*"), key=lambda file: file.name == "model.toml"):
            if file.is_file():
                target = folder / file.relative_to(made)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


def _make(folder: Path, version: int, sentences: tuple[str, ...]) -> Path:
    make_tiny_pair(folder, version=str(version), sentences=sentences, seed=version, eos_bias=6.0)
    size = len(pieces_of(folder / "source.spm"))
    teacher = tiny.model(src_vocab_size=size, trg_vocab_size=size, source_tokens_max=64, target_tokens_max=64)
    with torch.no_grad():
        teacher.output.weight.copy_(teacher.output.weight.roll(version, 0))
        teacher.output_bias[0] = 8.0  # sentences end
    save_native(teacher, folder / "teacher", "float32")
    edge, _, _ = (folder / "model.toml").read_text().partition("[sha256]")
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != "model.toml"]
    digests = [f'"{f.relative_to(folder).as_posix()}" = "{hashlib.sha256(f.read_bytes()).hexdigest()}"' for f in files]
    (folder / "model.toml").write_text(edge + ORIGIN.format(version=version) + "\n".join(digests) + "\n")
    return folder
