"""A segment too long for one run, as parts: what a reader sees of them, and how they become one text again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from edge_worker.core.join import Piece
from edge_worker.core.segmenter import Segment

Show = Callable[[Piece], None]


def shows_of_parts(parts: Sequence[Segment], show: Show | None) -> list[Show | None]:
    """One `show` a part: the segment's draft is shown when every part has one."""
    if show is None:
        return [None] * len(parts)
    drafts: dict[int, str] = {}

    def shown(index: int, piece: Piece) -> None:
        if piece.kind == "draft":
            drafts[index] = piece.text
            if len(drafts) == len(parts):
                text = glued(parts, [drafts[i] for i in range(len(parts))])
                show(msgspec.structs.replace(piece, text=text))

    return [partial(shown, index) for index in range(len(parts))]


def glued(parts: Sequence[Segment], texts: Sequence[str]) -> str:
    """Texts of a segment's parts with the gaps between them; the first part's gap is the segment's own."""
    return texts[0] + "".join(part.gap + text for part, text in zip(parts[1:], texts[1:], strict=True))


def merged(parts: Sequence[Segment], pieces: Sequence[Piece]) -> Piece:
    """The parts' translations as the segment's: of the origin when any part is, degraded when any part is."""
    best = next((piece for piece in reversed(pieces) if piece.tier == "origin"), pieces[-1])
    degraded = next((piece.degraded for piece in pieces if piece.degraded), "")
    text = glued(parts, [piece.text for piece in pieces])
    # What a part has beside its text is of no use to the whole: spans would lie elsewhere, ranks mean nothing.
    return Piece(text, best.kind, best.tier, best.model, degraded, bias=pieces[-1].bias)
