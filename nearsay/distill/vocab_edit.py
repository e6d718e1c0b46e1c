"""Gives an existing SentencePiece model reserved symbols, and takes out pieces that its language never uses.

A piece that takes the place of another gets its id, and so its embedding row.
Only the pieces of the model file are touched: the file is a protobuf message, and every other field is kept as it is.
Wire format: https://protobuf.dev/programming-guides/encoding/; message layout: sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

PIECES_FIELD = 1  # ModelProto.pieces
TEXT_FIELD, SCORE_FIELD, TYPE_FIELD = 1, 2, 3  # ModelProto.SentencePiece
NORMAL, USER_DEFINED = 1, 4


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("not a SentencePiece model: broken integer")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (field number, the field's raw bytes) in file order."""
    at = 0
    while at < len(data):
        start = at
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _read_varint(data, at)
        elif kind == 2:
            length, at = _read_varint(data, at)
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"not a SentencePiece model: wire type {kind}")
        if at > len(data):
            raise ValueError("not a SentencePiece model: truncated")
        yield key >> 3, data[start:at]


class Piece(NamedTuple):
    """A piece to put in another's place. A user-defined symbol is never split or merged; it needs no score."""

    text: str
    score: float = 0.0
    user_defined: bool = False

    def encode(self) -> bytes:
        name, kind = self.text.encode(), USER_DEFINED if self.user_defined else NORMAL
        body = bytes([TEXT_FIELD << 3 | 2]) + _varint(len(name)) + name
        body += bytes([SCORE_FIELD << 3 | 5]) + struct.pack("<f", self.score) + bytes([TYPE_FIELD << 3, kind])
        return bytes([PIECES_FIELD << 3 | 2]) + _varint(len(body)) + body


def edit_pieces(model: bytes, replaced: Mapping[int, Piece], dropped: Collection[int] = ()) -> tuple[bytes, list[int]]:
    """The model with other pieces at the ids in `replaced`, and without those in `dropped`.

    Returns the new model and, for each of its pieces, the id it had before: the rows of an embedding to keep.
    Raises ValueError when the bytes are no SentencePiece model or an id lies outside it.
    """
    out, kept, index = bytearray(), [], 0
    for number, raw in _fields(model):
        if number != PIECES_FIELD:
            out += raw
            continue
        if index in replaced:
            raw = replaced[index].encode()
        if index in replaced or index not in dropped:
            kept.append(index)
            out += raw
        index += 1
    if not all(0 <= i < index for i in (*replaced, *dropped)):
        raise ValueError(f"an id lies outside the model's {index} pieces")
    return bytes(out), kept
