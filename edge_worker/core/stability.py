"""Texts that are still being written: how firmly a segment holds on to what was said of it, and what is held back.

Decides: the bias a segment is decoded with, and which words at its end aren't shown.
Must not know: models, ids, sessions' memory.
Invariant: only a growing segment is touched; what is finished is translated plainly and shown whole.
Biased decoding and mask-k: Arivazhagan et al. (2020), "Re-translation versus Streaming for Simultaneous Translation".
"""

from __future__ import annotations

import re

import msgspec

from edge_worker.core.join import Piece
from edge_worker.core.segmenter import Segment
from nearsay.wire.messages import Translate

_WORD = re.compile(r"\S+")


def bias_of(request: Translate, segment: Segment, default: float) -> float:
    """The weight of the session's previous answer. Without a session there is none, and a beam can't lean."""
    decoding = request.decoding
    beam = decoding is not None and (decoding.beam > 1 or decoding.alternatives > 0)
    if not segment.growing or not request.session or beam:
        return 0.0
    asked = request.stability.bias if request.stability is not None else None
    return default if asked is None else asked


def masked(request: Translate, segment: Segment, piece: Piece) -> Piece:
    """The piece without the words that the request wants held back."""
    words = request.stability.mask if request.stability is not None else 0
    if not words or not segment.growing:
        return piece
    found = list(_WORD.finditer(piece.text))
    kept = found[: max(len(found) - words, 0)]
    text = piece.text[: kept[-1].end()] if kept else ""
    shown = tuple(pair for pair in piece.alignment if pair.target_end <= len(text))
    return msgspec.structs.replace(piece, text=text, masked=len(found) - len(kept), alignment=shown)
