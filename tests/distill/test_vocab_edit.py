from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from nearsay.distill.vocab_edit import Piece, edit_pieces
from tests.distill.kit import toy_vocab


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder: Path = tmp_path_factory.mktemp("vocab")
    toy_vocab(folder, "source.spm", 0)
    return (folder / "source.spm").read_bytes()


def load(model: bytes) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return processor


def test_no_edit_changes_no_byte(model: bytes) -> None:
    edited, kept = edit_pieces(model, {})
    assert edited == model
    assert kept == list(range(load(model).vocab_size()))


def test_a_replaced_piece_keeps_its_id_and_is_never_split(model: bytes) -> None:
    before = load(model)
    i = before.piece_to_id("⟦7⟧")
    edited, _ = edit_pieces(model, {i: Piece("@@name@@", user_defined=True)})
    after = load(edited)
    assert after.piece_to_id("@@name@@") == i
    assert after.encode("the cat, @@name@@.", out_type=str)[-2:] == ["@@name@@", "."] or i in after.encode("@@name@@")
    assert after.vocab_size() == before.vocab_size()


def test_dropped_pieces_leave_the_rows_of_the_others(model: bytes) -> None:
    before = load(model)
    dropped = {before.piece_to_id("⟦3⟧"), before.piece_to_id("⟦5⟧")}
    edited, kept = edit_pieces(model, {}, dropped)
    after = load(edited)
    assert [after.id_to_piece(i) for i in range(after.vocab_size())] == [before.id_to_piece(i) for i in kept]
    assert not dropped & set(kept)
    text = "the dog sees the tree 12."
    assert after.encode(text, out_type=str) == before.encode(text, out_type=str)


def test_a_new_character_gets_a_piece(model: bytes) -> None:
    before = load(model)
    assert before.unk_id() in before.encode("the cat’s")
    edited, _ = edit_pieces(model, {before.piece_to_id("⟦9⟧"): Piece("’", -11.0)})
    assert load(edited).unk_id() not in load(edited).encode("the ’")


def test_ids_outside_the_model_are_refused(model: bytes) -> None:
    with pytest.raises(ValueError, match="outside"):
        edit_pieces(model, {100_000: Piece("x")})


@given(st.binary(max_size=64))
def test_bytes_that_are_no_model_raise_value_error_or_pass_through(data: bytes) -> None:
    try:
        edited, _ = edit_pieces(data, {})
    except ValueError:
        return
    assert edited == data


@given(st.data())
def test_a_truncated_model_never_raises_anything_else(model: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(model) - 1))
    with contextlib.suppress(ValueError):
        edit_pieces(model[:cut], {})
