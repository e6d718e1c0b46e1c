"""One model that this machine has: its pair, tier, files and what peers are told about it.

Must not know: where it was found, how it is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nearsay.text.errors import ModelError
from nearsay.text.vocab import Vocab
from nearsay.wire.messages import ModelInfo, ServedTier, pack_ids


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one tier. `path` is a file for the engines "fxtranslate" and "marian", a folder for the others."""

    id: str
    version: str
    source: str
    target: str
    tier: ServedTier
    engine: str  # "ctranslate2" | "fxtranslate" | "nearsay" | "marian" | "hf"
    path: Path
    src_vocab: Path
    trg_vocab: Path
    src_vocab_hash: str
    trg_vocab_hash: str
    shortlist: Path | None = None
    vocab_ids: Path | None = None
    licence: str = ""
    beam: int = 1
    prefix_ids: tuple[int, ...] = ()
    src_prefix_ids: tuple[int, ...] = ()
    sha256: Mapping[Path, str] = {}  # expected digests of the files of this model
    created: int = 0  # when it was published, in Unix seconds

    @property
    def name(self) -> str:
        """`id@version`."""
        return f"{self.id}@{self.version}"

    @property
    def pair(self) -> str:
        """`source-target`."""
        return f"{self.source}-{self.target}"

    def verify(self) -> None:
        """Compare files with the digests listed. Raises ModelError for the first that differs or is missing."""
        for path, expected in self.sha256.items():
            if not path.is_file():
                raise ModelError(path, "is missing")
            if sha256_hex(path) != expected.lower():
                raise ModelError(path, "is damaged: its sha256 is not the one expected")

    def stamp(self) -> tuple[tuple[str, int, int, int], ...]:
        """Identity, size and age of the model's files: equal before and after a read, they did not change under it.
        Raises OSError."""
        files = {self.path, self.src_vocab, self.trg_vocab, *self.sha256}
        files |= {file for file in self.path.glob("*") if file.is_file()}
        found = ((str(file), file.stat()) for file in sorted(files))
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)

    def info(self, engine: str = "") -> ModelInfo:
        """What peers are told. `engine` says what runs it, e.g. `str(local_engine.info)`."""
        return ModelInfo(
            id=self.id,
            version=self.version,
            source=self.source,
            target=self.target,
            tier=self.tier,
            src_vocab_hash=self.src_vocab_hash,
            trg_vocab_hash=self.trg_vocab_hash,
            prefix_ids=pack_ids(self.prefix_ids),
            licence=self.licence,
            engine=engine or self.engine,
            created=self.created,
        )


def sha256_hex(path: Path) -> str:
    """Digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_vocabs(entry: ModelEntry) -> tuple[Vocab, Vocab]:
    """Source and target vocabulary of a model, one object when they are the same. Raises as `Vocab.load` does."""
    target = Vocab.load(entry.trg_vocab, ids_path=entry.vocab_ids)
    if entry.src_vocab == entry.trg_vocab and not entry.src_prefix_ids:
        return target, target
    return Vocab.load(entry.src_vocab, ids_path=entry.vocab_ids, prefix_ids=entry.src_prefix_ids), target
