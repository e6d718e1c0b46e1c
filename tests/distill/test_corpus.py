from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nearsay.distill.corpus import EVALUATION, MIX, Corpus, CorpusError, evaluation_pairs, read_pairs, training_pairs
from tests.distill.kit import toy_corpora, toy_pairs


def test_the_mix_holds_open_licences_only() -> None:
    assert {corpus.tier for corpus in MIX} == {"A", "B"}
    shares = {corpus.name: corpus.share for corpus in MIX}
    assert 0.3 <= shares["ui-strings"] <= 0.4
    assert shares["ding"] <= 0.1


def test_research_terms_and_evaluation_sets_never_train(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="non-commercial"):
        training_pairs(tmp_path, "de", Corpus("multi30k", "C"))
    with pytest.raises(CorpusError, match="never train"):
        training_pairs(tmp_path, "de", Corpus("tatoeba", "A", part="dev"))


def test_no_training_file_evaluates() -> None:
    trained = {str(corpus.path(Path(), "de")) for corpus in MIX}
    assert not trained & {name.format(target="de") for name in EVALUATION.values()}


def test_pairs_come_back_in_order(tmp_path: Path) -> None:
    toy_corpora(tmp_path)
    assert training_pairs(tmp_path, "de", MIX[0]) == toy_pairs(240, seed=0)
    assert evaluation_pairs(tmp_path, "de", "docs.dev", limit=3) == toy_pairs(12, seed=902)[:3]


@pytest.mark.parametrize("line", ["no tab", "a\t", "\tb", "a\tb\tc"])
def test_a_malformed_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.tsv.gz"
    with gzip.open(path, "wt") as file:
        file.write(f"good\tgut\n{line}\n")
    with pytest.raises(CorpusError, match=r"x\.tsv\.gz:2"):
        list(read_pairs(path))


def test_a_file_that_is_missing_or_no_gzip_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="gone"):
        list(read_pairs(tmp_path / "gone.tsv.gz"))
    (tmp_path / "text.tsv.gz").write_text("a\tb\n")
    with pytest.raises(CorpusError, match="text"):
        list(read_pairs(tmp_path / "text.tsv.gz"))


def test_an_unknown_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"tatoeba\.dev"):
        evaluation_pairs(tmp_path, "de", "nonsense")
