"""What the client of one stream has been shown, so that another edge can go on where the first one was lost.

Decides: which updates the client still needs, their revisions, and what a further attempt need not do again.
Must not know: links, edges, clocks; whether an edge can go on from here is that edge's to say (its update `restart`).
Invariants: revisions of a segment count up without a hole, over attempts and restarts; a segment shown as final is not
shown again; a partial text that the client has already is not shown again; after a restart nothing counts as shown.
"""

from __future__ import annotations

import msgspec

from nearsay.wire.messages import DoneSegment, Update

Place = tuple[int, int]  # item, segment


class Transcript:
    """One stream's, over all its attempts."""

    def __init__(self) -> None:
        self._last: dict[Place, Update] = {}
        self._revisions: dict[Place, int] = {}  # of the next update shown

    def take(self, update: Update) -> Update | None:
        """An edge's update as the client gets it; None when it has that already."""
        if update.kind == "restart":
            self._last.clear()
            return update
        place = update.item, update.segment
        if _known(self._last.get(place), update):
            return None
        revision = self._revisions.get(place, 0)
        self._revisions[place] = revision + 1
        shown = update if update.revision == revision else msgspec.structs.replace(update, revision=revision)
        self._last[place] = shown
        return shown

    @property
    def models(self) -> frozenset[str]:
        """`model@version` of everything shown."""
        return frozenset(update.model for update in self._last.values() if update.model)

    @property
    def done(self) -> tuple[DoneSegment, ...]:
        """The segments that are final, by source span, in order."""
        return tuple(
            DoneSegment(u.item, u.start, u.end, u.text, u.tier, u.model, u.degraded)
            for _, u in sorted(self._last.items())
            if u.kind == "segment"
        )


def _known(shown: Update | None, update: Update) -> bool:
    if shown is None:
        return False
    if shown.kind == "segment":
        return True
    if update.kind == "partial":  # the words of a further attempt catch up with those shown, or a draft stands
        return shown.kind == "draft" or shown.text.startswith(update.text)
    return update.kind == "draft" and shown.kind == "draft" and shown.text == update.text
