from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsay.distill.cli import Stop, app
from nearsay.distill.evaluate import Scores
from nearsay.distill.malloc import DONE
from nearsay.distill.publish import BEGIN, END
from nearsay.nmt.weights.load import load_model
from nearsay.nmt.weights.native import save_native
from tests.distill.kit import toy_config, toy_corpora, toy_network, toy_vocab


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(DONE, "test")  # no restart inside a test
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.mark.slow
def test_the_documented_steps_lead_from_a_seed_to_a_published_pair(tmp_path: Path, handlers: None) -> None:
    pair, runs = tmp_path / "en-de", tmp_path / "runs"
    pair.mkdir()
    src, trg = toy_vocab(pair, "source.spm", 0), toy_vocab(pair, "target.spm", 1)
    (pair / "README.md").write_text(f"# en-de\n\n{BEGIN}\n{END}\n")
    seed = tmp_path / "seed"
    save_native(toy_network(toy_config(src.vocab_size(), trg.vocab_size(), decoder_layers=3)), seed, "float32")
    common = ("--corpora", toy_corpora(tmp_path / "corpora"), "--pair", pair, "--runs", runs)
    learn = ("--tokens", 3000, "--rate", 0.004, "--warm-up", 3, *common)

    assert "finished" in invoke("train", "--from", seed, "--out", runs / "teacher", *learn)
    invoke("translate", "--teacher", runs / "teacher", "--out", runs / "made.tsv.gz", "--sentences", 60, *common)
    assert "kept decoder layers" in invoke(
        "student", "--teacher", runs / "teacher", "--out", runs / "cut", "--layers", 1, *common
    )
    assert "finished" in invoke(
        "train", "--from", runs / "cut", "--out", runs / "student", "--distilled", runs / "made.tsv.gz", *learn
    )
    models = ("--teacher", runs / "teacher", "--student", runs / "student", "--pair", pair)
    invoke("evaluate", *models, "--corpora", tmp_path / "corpora", "--out", runs / "scores.json", "--limit", 8)
    assert set(Scores.load(runs / "scores.json").models) == {"teacher", "student", "student-int8"}
    judged = CliRunner().invoke(app, ["gate", "--scores", str(runs / "scores.json"), "--pair", str(pair)])
    assert judged.exit_code in (0, 1) and "rungs" in judged.output
    invoke("publish", *models, "--scores", runs / "scores.json", "--version", "1")

    assert load_model(pair / "teacher").config.decoder_layers == 3
    assert load_model(runs / "student").config.decoder_layers == 1
    assert (pair / "model.toml").exists() and "tatoeba.dev" in (pair / "README.md").read_text()


def test_stop_is_asked_for_by_signal(handlers: None) -> None:
    stop = Stop()
    assert not stop()
    signal.raise_signal(signal.SIGTERM)
    assert stop()
