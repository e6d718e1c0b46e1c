"""Lays a pair's models out as the registry finds them: two vocabularies, the student, the teacher, model.toml, scores.

Decides: the names in the folder and what the model card says of scores. Invariant: model.toml holds the sha256 of
every file that a service reads; the bundled folder stays under a size that a clone can bear.
"""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

from nearsay.distill.corpus import EVALUATION
from nearsay.distill.evaluate import ROLES, Score, Scores
from nearsay.distill.gate import LADDER, LADDER_SET, ladder

SIZE_BYTES_MAX = 45_000_000
STUDENT, TEACHER = "student", "teacher"
SOURCE_VOCAB, TARGET_VOCAB = "source.spm", "target.spm"
SCORES_FILE, CARD_FILE, MANIFEST_FILE = "scores.json", "README.md", "model.toml"
SERVED = (
    SOURCE_VOCAB,
    TARGET_VOCAB,
    f"{STUDENT}/model.bin",
    f"{STUDENT}/config.json",
    f"{STUDENT}/source_vocabulary.json",
    f"{STUDENT}/target_vocabulary.json",
    f"{TEACHER}/config.json",
    f"{TEACHER}/model.safetensors",
)
BEGIN, END = "<!-- scores: written by `nearsay distill publish` -->", "<!-- end of scores -->"


class PublishError(Exception):
    """The folder can't be shipped; says why."""


def write_manifest(folder: Path, *, source: str, target: str, version: str, licence: str, published: date) -> None:
    """model.toml, to be written last: a service that looks before finds digests that don't fit, and changes nothing.

    Raises PublishError when a file is missing or all together are too large.
    """
    missing = [name for name in SERVED if not (folder / name).is_file()]
    if missing:
        raise PublishError(f"{folder.name} lacks {', '.join(missing)}")
    size = folder_bytes(folder)
    if size > SIZE_BYTES_MAX:
        raise PublishError(f"{folder.name} has {size} bytes, more than {SIZE_BYTES_MAX}")
    pair = f"{source}-{target}"
    lines = [
        f'source = "{source}"',
        f'target = "{target}"',
        f'licence = "{licence}"',
        f"published = {published.isoformat()}",
        *("", "[vocab]", f'source = "{SOURCE_VOCAB}"', f'target = "{TARGET_VOCAB}"'),
        *(
            "",
            "[edge]",
            f'id = "{pair}-student"',
            f'version = "{version}"',
            'engine = "ctranslate2"',
            f'path = "{STUDENT}"',
        ),
        *(
            "",
            "[origin]",
            f'id = "{pair}-teacher"',
            f'version = "{version}"',
            'engine = "nearsay"',
            f'path = "{TEACHER}"',
        ),
        *("beam = 1", "", "[sha256]"),
        *(f'"{name}" = "{hashlib.sha256((folder / name).read_bytes()).hexdigest()}"' for name in SERVED),
    ]
    (folder / MANIFEST_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def write_card(folder: Path, scores: Scores) -> None:
    """Puts the scores into the model card, between its two marks. Raises PublishError when it has none."""
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise PublishError(f"{CARD_FILE} has no place for scores ({BEGIN} ... {END})")
    card.write_text(f"{before}{BEGIN}\n\n{render_scores(scores)}\n{END}{after}", encoding="utf-8")


def render_scores(scores: Scores) -> str:
    """The scores as Markdown: BLEU / chrF by set and model, sizes, survival of symbols, signatures."""
    roles = [role for role in ROLES if role in scores.models]
    sets = [name for name in EVALUATION if any(name in scores.models[role] for role in roles)]
    lines = ["| BLEU / chrF, greedy | pairs | " + " | ".join(roles) + " |", "|---" * (len(roles) + 2) + "|"]
    for name in sets:
        found = [scores.models[role].get(name) for role in roles]
        pairs = next(s.pairs for s in found if s is not None)
        lines.append(f"| {name} | {pairs:,} | " + " | ".join(_cell(s) for s in found) + " |")
    if scores.size_bytes:
        lines.append("| size | | " + " | ".join(_size(scores.size_bytes.get(role)) for role in roles) + " |")
    if scores.symbols:
        cells = [f"{100 * scores.symbols[role]:.1f} %" if role in scores.symbols else "" for role in roles]
        lines.append("| pairs whose reserved symbols all survive | | " + " | ".join(cells) + " |")
    lines += ["", *(f"{name}: `{signature}`  " for name, signature in scores.signatures.items())]
    steps = " / ".join(f"{rung:g}" for rung in LADDER)
    reached = (f"{role} {bleu}, {rungs}" for role in roles for bleu, rungs in [ladder(scores, role)])
    lines.append(f"Rungs of {LADDER_SET} ({steps}) reached: {'; '.join(reached)}.")
    return "\n".join(lines) + "\n"


def _cell(found: Score | None) -> str:
    return "" if found is None else f"{found.bleu:.1f} / {found.chrf:.1f}"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f} MB"
