"""Token ids as bytes on the wire: packed, little-endian, readable without a copy."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as packed little-endian u32: 4 bytes an id."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes | memoryview) -> Sequence[int]:
    """Inverse of `pack_ids`. Raises ValueError when the length is no multiple of 4."""
    ids = array("I")
    ids.frombytes(data)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
