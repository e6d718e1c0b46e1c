"""What the SDK hands back: results of a translation, and the events of a streamed one.

Both transports build these: the link from wire messages, HTTP by decoding JSON straight into them. Unknown JSON fields
are ignored, so that an older SDK reads a newer proxy. Not here: how an answer travels.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nearsay.wire.errors import InternalError
from nearsay.wire.messages import ServedTier, Translated, Update, UpdateKind, WordPair


class Segment(msgspec.Struct, frozen=True):
    """One translated segment and the half-open span of its source text, in code points."""

    text: str
    start: int
    end: int
    tier: ServedTier
    model: str
    degraded: bool = False


class Translation(msgspec.Struct, frozen=True):
    """Answer to one text. `segments` is empty unless asked for."""

    text: str
    source: str
    tier: ServedTier
    model: str
    segments: tuple[Segment, ...] = ()
    degraded: bool = False  # a worse tier than asked for answered; `degraded_reason` says why
    degraded_reason: str = ""
    bias: float = 0.0  # the last segment leans on the session's previous answer with this weight
    masked: int = 0  # words at the end that are held back, because `stability` asked for it
    alternatives: tuple[str, ...] = ()  # the next best translations
    alignment: tuple[WordPair, ...] = ()  # which source words the words were made from


class Result(msgspec.Struct, frozen=True):
    """Answer to one `translate` call: as many translations as texts, in their order."""

    translations: tuple[Translation, ...]
    stages_ms: dict[str, float]
    request_id: str
    region: str = ""  # where it was translated
    routing: str = ""  # version@hash of the routing config that sent it there
    priority: str = ""  # "batch": served in that class though not asked to be, as the key's limits are used up

    @property
    def text(self) -> str:
        """The first translation: all there is when one text was sent."""
        return self.translations[0].text

    @property
    def texts(self) -> list[str]:
        """All translations."""
        return [translation.text for translation in self.translations]


class SegmentEvent(msgspec.Struct, frozen=True):
    """State of one segment of a streamed translation. A later revision replaces an earlier one.

    `gap` is the source text between the previous segment (or the start of the text) and this one.
    """

    item: int
    segment: int
    revision: int
    text: str
    gap: str = ""
    start: int = 0
    end: int = 0
    tier: ServedTier = "edge"
    model: str = ""


class Draft(SegmentEvent, frozen=True):
    """The edge's answer, which the origin will confirm or replace."""


class Partial(SegmentEvent, frozen=True):
    """Growing text of a segment; what stands never changes."""


class SegmentDone(SegmentEvent, frozen=True):
    """Final text of a segment."""


class Restart(msgspec.Struct, frozen=True):
    """Forget every segment so far: the edge was lost, and no other one has the same models. It all comes anew."""


class Done(msgspec.Struct, frozen=True):
    """Last event of a stream: the whole answer, equal to what `translate` returns."""

    result: Result


Event = Draft | Partial | SegmentDone | Restart | Done

EVENT_KINDS: Mapping[UpdateKind, type[Draft] | type[Partial] | type[SegmentDone]] = {
    "draft": Draft,
    "partial": Partial,
    "segment": SegmentDone,
}


def checked(result: Result, texts: int) -> Result:
    """The result, if it answers every text. Raises InternalError otherwise: no text is lost silently."""
    if len(result.translations) != texts:
        raise InternalError(f"{len(result.translations)} translations came back for {texts} texts")
    return result


def result_of(message: Translated, request_id: str) -> Result:
    """The result in a final link message."""
    return Result(
        translations=msgspec.convert(message.translations, tuple[Translation, ...], from_attributes=True),
        stages_ms=message.stages_ms,
        request_id=request_id,
        region=message.region,
        routing=message.routing,
        priority=message.priority,
    )


def event_of(update: Update) -> Event:
    """The event in a link update."""
    if update.kind == "restart":
        return Restart()
    return msgspec.convert(update, EVENT_KINDS[update.kind], from_attributes=True)
