from __future__ import annotations

from pathlib import Path

import pytest

from nearsay.distill.corpus import MIX, CorpusError, read_pairs
from nearsay.distill.distil import CHUNK, distillation_sources, distilled_pairs, sane, translate_sources
from nearsay.distill.symbols import SYMBOL
from tests.distill.kit import toy_corpora


def test_sources_are_mixed_once_each_and_some_hold_symbols(tmp_path: Path) -> None:
    folder = toy_corpora(tmp_path)
    sources = distillation_sources(folder, "de", MIX, symbols=1.0, seed=1)
    assert len(set(sources)) == len(sources)
    assert sources == distillation_sources(folder, "de", MIX, symbols=1.0, seed=1)
    assert any(SYMBOL.search(source) for source in sources)
    plain = distillation_sources(folder, "de", MIX, symbols=0.0, seed=1)
    assert not any(SYMBOL.search(source) for source in plain)


def test_translating_stops_and_goes_on(tmp_path: Path) -> None:
    sources = [f"source {n}" for n in range(CHUNK + 5)]
    asked: list[int] = []

    def translate(part: object) -> list[str]:
        assert isinstance(part, list)
        asked.append(len(part))
        return [source.upper() for source in part]

    path = tmp_path / "deep" / "made.tsv.gz"
    stops = iter([False, True])
    assert list(translate_sources(sources, translate, path, lambda: next(stops))) == [CHUNK]
    assert list(translate_sources(sources, translate, path, lambda: False)) == [CHUNK + 5]
    assert asked == [CHUNK, 5]
    assert list(read_pairs(path)) == [(source, source.upper()) for source in sources]


def test_translations_that_lost_their_way_teach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made.tsv.gz"
    answers = [
        "Gut.",
        "",
        "und " * 40,
        "Das ist ein langer und ganz gewöhnlicher Satz mit vielen verschiedenen Wörtern.",
    ]
    sources = ["Good.", "Empty.", "x" * 200, "This is a long and quite ordinary sentence of many different words."]
    list(translate_sources(sources, lambda part: answers, path, lambda: False))
    assert [source for source, _ in distilled_pairs(path)] == [sources[0], sources[3]]
    assert not sane("Hi.", "Hallo, " * 10)


def test_missing_translations_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="distill translate"):
        distilled_pairs(tmp_path / "none.tsv.gz")
