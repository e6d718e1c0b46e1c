"""Scores of a translator on the evaluation sets: BLEU and chrF, with the signatures that make them comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import sacrebleu

from nearsay.distill.corpus import Pair
from nearsay.distill.symbols import SYMBOL, protect, survived
from nearsay.distill.translator import BulkTranslator

BLEU, CHRF = sacrebleu.BLEU, sacrebleu.CHRF
ROLES = ("teacher", "student", "student-int8")


class Score(msgspec.Struct, frozen=True):
    """Percent, two decimals, over `pairs` pairs."""

    bleu: float
    chrf: float
    pairs: int


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """models: by role ("teacher", "student", "student-int8"), then by evaluation set. size_bytes: each model's files.
    symbols: share of held-out pairs whose reserved symbols all survived, by role."""

    signatures: dict[str, str]
    models: dict[str, dict[str, Score]]
    symbols: dict[str, float] = {}
    size_bytes: dict[str, int] = {}

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def load(cls, path: Path) -> Scores:
        return msgspec.json.decode(path.read_bytes(), type=cls)


def score(translations: Sequence[str], references: Sequence[str]) -> tuple[Score, dict[str, str]]:
    """The score, and the signature of each metric."""
    signatures: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        values[name] = round(metric.corpus_score(list(translations), [list(references)]).score, 2)
        signatures[name] = str(metric.get_signature())
    return Score(pairs=len(references), **values), signatures


def evaluate(translator: BulkTranslator, sets: Mapping[str, Sequence[Pair]]) -> tuple[dict[str, Score], dict[str, str]]:
    """A score for each set, and the signatures."""
    scores: dict[str, Score] = {}
    signatures: dict[str, str] = {}
    for name, pairs in sets.items():
        translations = translator.translate([source for source, _ in pairs])
        scores[name], signatures = score(translations, [target for _, target in pairs])
    return scores, signatures


def symbol_survival(translator: BulkTranslator, pairs: Sequence[Pair], rng: Any) -> tuple[float, float, int]:
    """Held-out pairs with their shared items as symbols: the share of pairs that keep all of them and no other, the
    share of single symbols that survive, and how many pairs had any. Raises ValueError when none had."""
    protected = [done for source, target in pairs if (done := protect(source, target, rng)) is not None]
    if not protected:
        raise ValueError("no pair has a protected item on both sides")
    translations = translator.translate([source for source, _, _ in protected])
    whole = single = total = 0
    for (source, _, _), translation in zip(protected, translations, strict=True):
        whole += survived(source, translation)
        wanted = SYMBOL.findall(source)
        found = SYMBOL.findall(translation)
        total += len(wanted)
        single += sum(min(wanted.count(k), found.count(k)) for k in set(wanted))
    return whole / len(protected), single / total, len(protected)
