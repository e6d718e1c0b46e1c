"""A stream that another edge began: which of its segments are done, and whether this edge can go on from there.

Decides: resume or restart. Must not know: links, models but by name, clocks.
Invariant: what was done is taken over only when every span of it is a segment here, too, and all that was shown came
from models that this edge would ask; else nothing is, so that no answer mixes two versions or two cuts of a text.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from edge_worker.core.join import Join, Piece
from nearsay.wire.messages import Translate


def resume(joins: Sequence[Join], request: Translate, models: Container[str]) -> bool:
    """Put what is done into the joins; False when the stream has to restart. `models`: this edge's, for the pair."""
    if not all(name in models for name in request.models):
        return False
    places = {
        (join.item, segment.start, segment.end): (join, index)
        for join in joins
        for index, segment in enumerate(join.segments)
    }
    found = [places.get((done.item, done.start, done.end)) for done in request.done]
    if None in found or len(set(map(id, found))) < len(found):
        return False
    for place, done in zip(found, request.done, strict=True):
        assert place is not None
        join, index = place
        join.restore(index, Piece(done.text, "segment", done.tier, done.model, done.degraded))
    return True
