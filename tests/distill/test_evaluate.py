from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from nearsay.distill.evaluate import Scores, evaluate, score, symbol_survival
from nearsay.distill.translator import BulkTranslator


class Fake:
    """Answers from a function: what evaluation needs of a translator."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def translate(self, sources: Sequence[str]) -> list[str]:
        assert callable(self._answer)
        return [self._answer(source) for source in sources]


def fake(answer: object) -> BulkTranslator:
    return cast(BulkTranslator, Fake(answer))


def test_a_perfect_translation_scores_a_hundred() -> None:
    made, signatures = score(["Das ist ein guter Tag."], ["Das ist ein guter Tag."])
    assert (made.bleu, made.chrf, made.pairs) == (100.0, 100.0, 1)
    assert "version:" in signatures["bleu"] and "version:" in signatures["chrf"]


def test_sets_are_scored_apart_and_kept(tmp_path: Path) -> None:
    sets = {"a": [("x", "Das ist ein guter Tag.")], "b": [("y", "Etwas ganz anderes steht hier.")]}
    made, signatures = evaluate(fake(lambda source: "Das ist ein guter Tag."), sets)
    assert made["a"].bleu == 100.0 and made["b"].bleu < 20
    scores = Scores(signatures=signatures, models={"teacher": made})
    scores.save(tmp_path / "scores.json")
    assert Scores.load(tmp_path / "scores.json") == scores


def test_survival_counts_pairs_and_symbols() -> None:
    pairs = [("Anna has 12.", "Anna hat 12."), ("Oslo is big.", "Oslo ist groß."), ("no item", "nichts")]
    assert symbol_survival(fake(lambda s: s), pairs, random.Random(0)) == (1.0, 1.0, 2)
    whole, single, count = symbol_survival(fake(lambda s: s.split()[0]), pairs, random.Random(0))
    assert (whole, single, count) == (0.5, pytest.approx(2 / 3), 2)


def test_survival_needs_a_pair_with_an_item() -> None:
    with pytest.raises(ValueError, match="no pair"):
        symbol_survival(fake(lambda s: s), [("a", "b")], random.Random(0))
