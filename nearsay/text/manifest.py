"""`model.toml`: what one pair folder holds, read into types.

Decides: which keys exist and which engine may serve which tier. Must not know: where folders are searched, engines.
Invariant: an unknown key, a wrong type or a missing tier is refused by name, so a typo never becomes a default.
"""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import msgspec

from nearsay.text.errors import ModelError

TIER_ENGINES = {"edge": ("ctranslate2", "fxtranslate"), "origin": ("nearsay", "marian", "hf")}
# Files (glob patterns) without which an engine can't open a folder.
ENGINE_FILES = {
    "ctranslate2": ("model.bin", "config.json", "*vocabulary.*"),
    "nearsay": ("config.json", "model.safetensors"),
    "hf": ("config.json", "*.safetensors"),
}


class VocabSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SentencePiece files; `ids` is the `vocab.json` of a checkpoint whose ids are not SentencePiece's own."""

    source: str
    target: str
    ids: str = ""


class TierSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. Paths are relative to the pair folder; `vocab` overrides the folder's."""

    id: str
    version: str
    engine: str
    path: str
    beam: int = 1
    shortlist: str = ""
    prefix_ids: tuple[int, ...] = ()  # decoder prefix (target language of a multilingual model)
    src_prefix_ids: tuple[int, ...] = ()  # opens every source (source language)
    vocab: VocabSpec | None = None


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole `model.toml`. `sha256` maps file names, relative to the folder, to hex digests.

    published: a TOML date; without it the age of the files counts.
    """

    source: str
    target: str
    licence: str = ""
    published: date | None = None
    vocab: VocabSpec | None = None
    edge: TierSpec | None = None
    origin: TierSpec | None = None
    sha256: dict[str, str] = {}


def read_manifest(path: Path) -> Manifest:
    """Read a `model.toml`. Raises ModelError for anything that isn't exactly right, OSError for an unreadable file."""
    try:
        manifest = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Manifest)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(path, f"is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ModelError(path, str(error)) from error
    if manifest.edge is None and manifest.origin is None:
        raise ModelError(path, "has neither [edge] nor [origin]")
    return manifest


def check_tier(tier: str, spec: TierSpec, folder: Path) -> None:
    """Raises ModelError when the engine can't serve the tier or a file that it needs isn't there."""
    if spec.engine not in TIER_ENGINES[tier]:
        allowed = ", ".join(TIER_ENGINES[tier])
        raise ModelError(folder, f"[{tier}] engine {spec.engine!r} is none of {allowed}")
    path = folder / spec.path
    if spec.engine not in ENGINE_FILES:
        require_file(path)
        return
    for pattern in ENGINE_FILES[spec.engine]:
        found = next(path.glob(pattern), None)
        if found is None:
            if spec.engine == "hf" and any(path.glob("pytorch_model*.bin")):
                raise ModelError(path, "has only pickled weights, which are never loaded: save them as safetensors")
            raise ModelError(path, f"has no {pattern}")
        require_file(found)


def require_file(path: Path) -> Path:
    """The path, when it is a file with something in it. Raises ModelError otherwise."""
    if not path.is_file():
        raise ModelError(path, "is missing")
    if path.stat().st_size == 0:
        raise ModelError(path, "is empty")
    return path
