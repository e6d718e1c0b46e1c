"""Text to ids and back, with SentencePiece's own ids and with a checkpoint's."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.vocab import Vocab, vocab_hash
from tests.kit.tiny_vocab import make_tiny_vocab, pieces_of


@pytest.fixture(scope="module")
def spm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vocab(tmp_path_factory.mktemp("vocab") / "tiny.spm")


@pytest.fixture(scope="module")
def vocab(spm: Path) -> Vocab:
    return Vocab.load(spm)


def test_ids_come_back_as_text_and_never_hold_an_eos(vocab: Vocab) -> None:
    text = "the cat looked at the garden"
    ids = vocab.encode(text)
    assert vocab.eos_id not in ids and vocab.decode(ids) == text
    assert vocab.ids(vocab.pieces(ids)) == ids


def test_special_ids_and_size_are_the_models(vocab: Vocab, spm: Path) -> None:
    assert (vocab.eos_id, vocab.unk_id, vocab.size) == (0, 1, len(pieces_of(spm)))
    assert vocab.table == pieces_of(spm)


def test_the_hash_names_the_bytes(vocab: Vocab, spm: Path) -> None:
    assert vocab.hash == vocab_hash(spm) == hashlib.sha256(spm.read_bytes()).hexdigest()[:16]


def test_eos_leaves_no_trace_in_text_and_unk_does(vocab: Vocab) -> None:
    ids = vocab.encode("the cat")
    assert vocab.decode([*ids, vocab.eos_id]) == "the cat"
    assert "⁇" in vocab.decode([vocab.unk_id])


@pytest.mark.parametrize("wrong", [-1, 10_000_000])
def test_ids_outside_are_refused(vocab: Vocab, wrong: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        vocab.decode([wrong])
    with pytest.raises(ValueError, match="out of range"):
        vocab.pieces([wrong])


def test_an_unknown_piece_becomes_unk(vocab: Vocab) -> None:
    assert vocab.ids(["not a piece"]) == [vocab.unk_id]


def test_nothing_gives_nothing(vocab: Vocab) -> None:
    assert vocab.encode("") == vocab.encode(" \n\t ") == []
    assert vocab.decode([]) == ""
    assert vocab.pieces([]) == []


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
@settings(deadline=None)
def test_any_text_gives_valid_ids(vocab: Vocab, text: str) -> None:
    ids = vocab.encode(text)
    assert all(0 < i < vocab.size for i in ids)
    vocab.decode(ids)


def test_a_lone_surrogate_reads_as_a_replacement_character(vocab: Vocab) -> None:
    assert vocab.encode("cat \ud800") == vocab.encode("cat �")
    assert vocab.encode("cat \ud83d\ude00") == vocab.encode("cat 😀")


def test_a_checkpoints_own_ids_replace_sentencepieces(spm: Path, tmp_path: Path) -> None:
    own = {piece: i for i, piece in enumerate(reversed(pieces_of(spm)))}
    own["__en__"] = len(own)
    ids_path = tmp_path / "vocab.json"
    ids_path.write_text(json.dumps(own), encoding="utf-8")
    vocab = Vocab.load(spm, ids_path=ids_path, prefix_ids=[own["__en__"]])
    assert (vocab.size, vocab.eos_id, vocab.unk_id) == (len(own), own["</s>"], own["<unk>"])
    ids = vocab.encode("the cat")
    assert ids[0] == own["__en__"]
    assert vocab.decode([*ids, vocab.eos_id]) == "the cat", "language tokens and eos are not spoken"
    assert vocab.hash != vocab_hash(spm), "other ids, other hash"


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "not JSON"), ("[]", "not a map"), ('{"a": -1}', "not a map"), ('{"</s>": 0}', "no id for <unk>")],
)
def test_a_damaged_id_map_is_refused(spm: Path, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=reason):
        Vocab.load(spm, ids_path=path)


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.spm").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        Vocab.load(tmp_path / "bad.spm")
    with pytest.raises(ModelError, match="can't be read"):
        Vocab.load(tmp_path / "missing.spm")


def test_without_sentencepiece_the_extra_is_named(spm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(EngineUnavailable, match=r"nearsay\[edge\]"):
        Vocab.load(spm)
