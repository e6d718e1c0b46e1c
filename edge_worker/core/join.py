"""Segments back into one text, in order, while they arrive in any order.

Decides: which updates a reader may see now, and their revisions. Must not know: models, links, clocks.
A segment is shown when those before it are at least drafted, so that a reader who appends never jumps; once shown, it
may be revised at any time. Invariants: revisions of a segment count up from 0 without a hole; a segment's last update
is its only one of kind "segment"; what waits is kept in its newest state alone; gaps and tail are the source's, so the
joined text of untranslated segments is the source itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edge_worker.core.segmenter import Segment, Segmented
from nearsay.wire.messages import SegmentText, ServedTier, Update, UpdateKind, WordPair


class Piece(msgspec.Struct, frozen=True):
    """A state of one segment's translation. `degraded` says why a worse tier answered, empty when none did.

    bias, masked, alternatives: as in TranslatedText. alignment: spans of the segment's own source and translation.
    """

    text: str
    kind: UpdateKind = "segment"
    tier: ServedTier = "edge"
    model: str = ""
    degraded: str = ""
    bias: float = 0.0
    masked: int = 0
    alternatives: tuple[str, ...] = ()
    alignment: tuple[WordPair, ...] = ()


class Join:
    """One text. `item` is its place in the request."""

    def __init__(self, item: int, source: Segmented) -> None:
        self.item = item
        self.segments = source.segments
        self._tail = source.tail
        self._states: list[Piece | None] = [None] * len(source.segments)
        self._revisions = [0] * len(source.segments)  # of the next update shown
        self._shown = 0  # segments before this one are drafted or final, and shown
        self._left = len(source.segments)  # not final yet
        self._restored: set[int] = set()

    @property
    def done(self) -> bool:
        """Every segment is final."""
        return self._left == 0

    def left(self) -> list[int]:
        """Numbers of the segments that are not final."""
        return [index for index, state in enumerate(self._states) if state is None or state.kind != "segment"]

    def add(self, segment: int, piece: Piece) -> list[Update]:
        """Take a segment's new state; the updates to show now, in order."""
        before = self._states[segment]
        assert before is None or before.kind != "segment", "a final segment never changes"
        self._states[segment] = piece
        self._left -= piece.kind == "segment"
        if segment > self._shown:
            return []
        updates = [self._update(segment, piece)]
        while self._shown < len(self._states) and (state := self._states[self._shown]) and state.kind != "partial":
            self._shown += 1
            waiting = self._states[self._shown] if self._shown < len(self._states) else None
            if waiting is not None and self._shown not in self._restored:
                updates.append(self._update(self._shown, waiting))
        return updates

    def restore(self, segment: int, piece: Piece) -> None:
        """A final piece that the reader has from an earlier attempt: nothing is shown. Before any `add`."""
        assert piece.kind == "segment" and self._states[segment] is None
        self._states[segment] = piece
        self._restored.add(segment)
        self._left -= 1
        while self._shown < len(self._states) and self._states[self._shown]:
            self._shown += 1

    def text(self) -> str:
        """The joined translation; every segment must be final."""
        return "".join([source.gap + piece.text for source, piece in self._final()]) + self._tail

    def alternatives(self) -> tuple[str, ...]:
        """The next best texts: in each, every segment's next best, or its best where it has no more. None twice."""
        final = self._final()
        count = max((len(piece.alternatives) for _, piece in final), default=0)
        texts = [self.text()]
        for rank in range(count):
            said = [piece.alternatives[rank] if rank < len(piece.alternatives) else piece.text for _, piece in final]
            texts.append(
                "".join([source.gap + text for (source, _), text in zip(final, said, strict=True)]) + self._tail
            )
        return tuple(dict.fromkeys(texts))[1:]

    def alignment(self) -> tuple[WordPair, ...]:
        """The segments' word pairs, as spans of the whole texts."""
        pairs: list[WordPair] = []
        at = 0
        for source, piece in self._final():
            at += len(source.gap)
            for pair in piece.alignment:
                start, end = pair.start + source.start, pair.end + source.start
                pairs.append(WordPair(start, end, pair.target_start + at, pair.target_end + at))
            at += len(piece.text)
        return tuple(pairs)

    def pieces(self) -> list[Piece]:
        """The final pieces, in order."""
        return [piece for _, piece in self._final()]

    def segment_texts(self) -> tuple[SegmentText, ...]:
        """The final pieces with the spans of their sources."""
        return tuple(
            SegmentText(piece.text, source.start, source.end, piece.tier, piece.model, bool(piece.degraded))
            for source, piece in self._final()
        )

    def _final(self) -> Sequence[tuple[Segment, Piece]]:
        assert self.done
        return [(source, state) for source, state in zip(self.segments, self._states, strict=True) if state]

    def _update(self, segment: int, piece: Piece) -> Update:
        source, revision = self.segments[segment], self._revisions[segment]
        self._revisions[segment] = revision + 1
        return Update(
            item=self.item,
            segment=segment,
            revision=revision,
            kind=piece.kind,
            text=piece.text,
            gap=source.gap,
            start=source.start,
            end=source.end,
            tier=piece.tier,
            model=piece.model,
            degraded=piece.degraded,
        )
