"""A vocabulary: text to token ids and back, by SentencePiece.

Decides: which ids a model sees. Must not know: models, engines, pairs.
Invariants: `hash` names exactly the bytes that define the ids, so two processes with equal hashes agree on every id;
`encode` never adds the closing eos; a lone surrogate, which has no UTF-8 form, is read as U+FFFD.
Kudo & Richardson 2018, "SentencePiece: a simple and language independent subword tokenizer".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from nearsay.text.errors import EngineUnavailable, ModelError

HASH_HEX_DIGITS = 16
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"


def vocab_hash(path: Path, ids_path: Path | None = None) -> str:
    """First 16 hex digits of the sha256 of the file's bytes (followed by those of the id map, where there is one)."""
    digest = hashlib.sha256(path.read_bytes())
    if ids_path is not None:
        digest.update(ids_path.read_bytes())
    return digest.hexdigest()[:HASH_HEX_DIGITS]


class Vocab:
    """One SentencePiece model, with the ids that stand in it or with those of a checkpoint's own `vocab.json`."""

    hash: str
    size: int
    eos_id: int
    unk_id: int

    def __init__(self, processor: Any, digest: str, ids: Mapping[str, int] | None, prefix_ids: Sequence[int]) -> None:
        """Use `load`. `ids` maps pieces to the model's ids; `prefix_ids` open every encoded text (source language)."""
        self._processor = processor
        self._ids = ids
        self._prefix = list(prefix_ids)
        self.hash = digest
        if ids is None:
            self.size, self.eos_id, self.unk_id = processor.get_piece_size(), processor.eos_id(), processor.unk_id()
        else:
            self.size, self.eos_id, self.unk_id = max(ids.values()) + 1, ids[EOS_PIECE], ids[UNK_PIECE]

    @classmethod
    def load(cls, path: Path, *, ids_path: Path | None = None, prefix_ids: Sequence[int] = ()) -> Vocab:
        """Read a `.spm`/`.model` file.

        `ids_path` is the piece-to-id JSON of a Hugging Face checkpoint whose ids are not SentencePiece's own.
        Raises ModelError for a file that is missing or no vocabulary, EngineUnavailable without sentencepiece.
        """
        try:
            import sentencepiece
        except ImportError as error:
            raise EngineUnavailable("sentencepiece", "not installed", extra="edge") from error
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
            ids = None if ids_path is None else _read_ids(ids_path)
            return cls(processor, vocab_hash(path, ids_path), ids, prefix_ids)
        except OSError as error:
            raise ModelError(path, f"can't be read: {error.strerror}") from error
        except RuntimeError as error:
            raise ModelError(path, "is not a SentencePiece model") from error

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without eos. Empty for text that is only whitespace."""
        if not text.isascii() and _has_surrogate(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if self._ids is None:
            ids: list[int] = self._processor.encode(text)
        else:
            known, unk = self._ids, self.unk_id
            ids = [known.get(piece, unk) for piece in self._processor.encode_as_pieces(text)]
        return self._prefix + ids if self._prefix else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control symbols (eos, language tokens) leave no trace. Raises ValueError for ids outside."""
        if self._ids is None:
            try:
                text: str = self._processor.decode(list(ids))
            except IndexError:
                raise ValueError(f"token id out of range 0..{self.size - 1}") from None
            return text
        spoken = [piece for piece in self.pieces(ids) if piece in self._spoken]
        return str(self._processor.decode_pieces(spoken))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of ids. Raises ValueError for ids outside the vocabulary."""
        table, size = self.table, self.size
        if ids and (min(ids) < 0 or max(ids) >= size):
            raise ValueError(f"token id out of range 0..{size - 1}")
        return [table[i] for i in ids]

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """Ids of pieces; a piece that the vocabulary doesn't hold becomes unk."""
        known, unk = self._by_piece, self.unk_id
        return [known.get(piece, unk) for piece in pieces]

    @cached_property
    def table(self) -> list[str]:
        """Piece of every id; made once (5 ms for 32,000 pieces), because an engine looks up every token."""
        if self._ids is None:
            return list(self._processor.id_to_piece(list(range(self.size))))
        table = [UNK_PIECE] * self.size
        for piece, i in self._ids.items():
            table[i] = piece
        return table

    @cached_property
    def _by_piece(self) -> Mapping[str, int]:
        return self._ids if self._ids is not None else {piece: i for i, piece in enumerate(self.table)}

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """Pieces of a mapped vocabulary that SentencePiece itself knows and that are no control symbols."""
        sp = self._processor
        return frozenset(sp.id_to_piece(i) for i in range(sp.get_piece_size()) if not sp.is_control(i))


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _read_ids(path: Path) -> Mapping[str, int]:
    try:
        ids = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(path, "is not JSON") from error
    if not isinstance(ids, dict) or not all(isinstance(i, int) and i >= 0 for i in ids.values()):
        raise ModelError(path, "is not a map of pieces to ids")
    for piece in (EOS_PIECE, UNK_PIECE):
        if piece not in ids:
            raise ModelError(path, f"has no id for {piece}")
    return ids
