"""What one folder of models holds: a pair folder with a `model.toml`, or a Firefox Translations download.

Decides: a folder's entries. Must not know: where folders are searched, which entry wins, how a model is run.
Invariants: a damaged tier doesn't hide the other one; a reason is a sentence, never a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path

from nearsay.text.entry import ModelEntry, sha256_hex
from nearsay.text.errors import ModelError
from nearsay.text.manifest import Manifest, TierSpec, check_tier, read_manifest, require_file
from nearsay.text.vocab import vocab_hash
from nearsay.wire.messages import ServedTier

MANIFEST = "model.toml"
FIREFOX_BEAM = 4  # of the origin; the edge is greedy
TIERS: tuple[ServedTier, ...] = ("edge", "origin")
_PAIR_FOLDER = re.compile(r"([a-z]{2,3}(?:_[a-z]+)?)-([a-z]{2,3}(?:_[a-z]+)?)")
_PAIR_FILE = re.compile(r"model\.([a-z]{2})([a-z]{2})\.")


def is_model_folder(folder: Path) -> bool:
    """Whether the folder itself is a pair folder (otherwise it may hold some)."""
    return (folder / MANIFEST).is_file() or any(folder.glob("model.*.bin"))


def read_folder(folder: Path, *, licence: str = "") -> Iterator[ModelEntry | ModelError]:
    """Entries of a model folder, and what is wrong with those that can't be served. Raises OSError."""
    try:
        yield from _described(folder) if (folder / MANIFEST).is_file() else _firefox(folder, licence)
    except ModelError as error:
        yield error


def _described(folder: Path) -> Iterator[ModelEntry | ModelError]:
    manifest = read_manifest(folder / MANIFEST)
    for tier in TIERS:
        spec = manifest.edge if tier == "edge" else manifest.origin
        if spec is None:
            continue
        try:
            yield _entry(folder, manifest, tier, spec)
        except ModelError as error:
            yield error


def _entry(folder: Path, manifest: Manifest, tier: ServedTier, spec: TierSpec) -> ModelEntry:
    check_tier(tier, spec, folder)
    vocab = spec.vocab or manifest.vocab
    if vocab is None:
        raise ModelError(folder / MANIFEST, f"has no [vocab] for [{tier}]")
    source, target = require_file(folder / vocab.source), require_file(folder / vocab.target)
    ids = require_file(folder / vocab.ids) if vocab.ids else None
    shortlist = require_file(folder / spec.shortlist) if spec.shortlist else None
    return ModelEntry(
        id=spec.id,
        version=spec.version,
        source=manifest.source,
        target=manifest.target,
        tier=tier,
        engine=spec.engine,
        path=folder / spec.path,
        src_vocab=source,
        trg_vocab=target,
        src_vocab_hash=vocab_hash(source, ids),
        trg_vocab_hash=vocab_hash(target, ids),
        shortlist=shortlist,
        vocab_ids=ids,
        licence=manifest.licence,
        beam=spec.beam,
        prefix_ids=spec.prefix_ids,
        src_prefix_ids=spec.src_prefix_ids,
        sha256=_digests(folder, manifest.sha256, (folder / spec.path, source, target, ids, shortlist)),
        created=_created(manifest.published, folder / spec.path),
    )


def _created(published: date | None, path: Path) -> int:
    """Midnight (UTC) of the day of publication, or the age of the youngest file."""
    if published is not None:
        return int(datetime.combine(published, time(), UTC).timestamp())
    return int(max(file.stat().st_mtime for file in (path, *path.glob("*"))))


def _digests(folder: Path, listed: Mapping[str, str], of: tuple[Path | None, ...]) -> dict[Path, str]:
    """The listed digests of the given files, and of all files under the given folders."""
    digests = {folder / name: digest for name, digest in listed.items()}
    return {path: digest for path, digest in digests.items() if path in of or any(up in of for up in path.parents)}


def _firefox(folder: Path, licence: str) -> Iterator[ModelEntry]:
    """Both tiers of `model.*.bin`, `vocab.*.spm` (or `srcvocab.*` and `trgvocab.*`) and, if there, `lex.*.bin`."""
    model = require_file(_only(folder, "model.*.bin"))
    source_language, target_language = _pair_of(folder, model)
    shared = any(folder.glob("vocab.*.spm"))
    source = require_file(_only(folder, "vocab.*.spm" if shared else "srcvocab.*.spm"))
    target = source if shared else require_file(_only(folder, "trgvocab.*.spm"))
    shortlist = _only(folder, "lex.*.bin") if any(folder.glob("lex.*.bin")) else None
    digest = sha256_hex(model)
    for tier in TIERS:
        edge = tier == "edge"
        yield ModelEntry(
            id=f"{source_language}-{target_language}-firefox" + ("" if edge else "-float"),
            version=digest[:8],
            source=source_language,
            target=target_language,
            tier=tier,
            engine="fxtranslate" if edge else "marian",
            path=model,
            src_vocab=source,
            trg_vocab=target,
            src_vocab_hash=vocab_hash(source),
            trg_vocab_hash=vocab_hash(target),
            shortlist=shortlist if edge else None,
            licence=licence,
            beam=1 if edge else FIREFOX_BEAM,
            sha256={model: digest},
            created=_created(None, model),
        )


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        reason = f"has no {pattern}" if not found else f"has {len(found)} files {pattern}, one is wanted"
        raise ModelError(folder, reason)
    return found[0]


def _pair_of(folder: Path, model: Path) -> tuple[str, str]:
    match = _PAIR_FOLDER.fullmatch(folder.name) or _PAIR_FILE.match(model.name)
    if match is None:
        raise ModelError(folder, "its languages are unknown: name the folder like en-es")
    return match[1].replace("_", "-"), match[2].replace("_", "-")
