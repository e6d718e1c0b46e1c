"""Answers and events as JSON bytes: plain objects, rendered by orjson."""

from __future__ import annotations

import msgspec
import orjson

from nearsay.wire.messages import SegmentText, Translated, TranslatedText, Update
from proxy.core.catalogue import Catalogue


def translations(answer: Translated) -> bytes:
    """The answer's `translations` array. `degraded` stands only where a worse tier than asked for answered, `bias`,
    `masked`, `alternatives` and `alignment` only where there are any."""
    return orjson.dumps([_translation(translation) for translation in answer.translations])


def envelope(
    translations: bytes,
    stages_ms: dict[str, float],
    request_id: str,
    *,
    region: str = "",
    routing: str = "",
    lowered_to: str = "",
) -> bytes:
    """The whole answer around a rendered array: rendering is timed, so it comes before the times are written.

    `region` answered, by the config that `routing` names. `lowered_to`: the class it was served in, when that isn't
    the one asked for.
    """
    tail = b',"stages_ms":' + orjson.dumps(stages_ms) + b',"request_id":' + orjson.dumps(request_id)
    tail += b',"region":' + orjson.dumps(region) + b',"routing":' + orjson.dumps(routing)
    if lowered_to:
        tail += b',"priority":' + orjson.dumps(lowered_to)
    return b'{"translations":' + translations + tail + b"}"


def update(update: Update) -> bytes:
    """Data of a `draft`, `partial` or `segment` event; a `restart` has nothing to say beyond its name."""
    if update.kind == "restart":
        return b"{}"
    return orjson.dumps(
        {
            "item": update.item,
            "segment": update.segment,
            "revision": update.revision,
            "text": update.text,
            "gap": update.gap,
            "start": update.start,
            "end": update.end,
            "tier": update.tier,
            "model": update.model,
        }
    )


def languages(catalogue: Catalogue) -> bytes:
    """Answer of `GET /v1/languages`."""
    return orjson.dumps({"languages": catalogue.languages()})


def models(catalogue: Catalogue) -> bytes:
    """Answer of `GET /v1/models`: the OpenAI list shape, and what a translation model has besides."""
    data = [
        {
            "id": model.name,
            "object": "model",
            "created": model.created,
            "owned_by": "nearsay",
            "source": model.source,
            "target": model.target,
            "tier": model.tier,
            "engine": model.engine,
            "licence": model.licence,
        }
        for model in catalogue.models
    ]
    return orjson.dumps({"object": "list", "data": data})


def _translation(translation: TranslatedText) -> dict[str, object]:
    fields: dict[str, object] = {
        "text": translation.text,
        "source": translation.source,
        "tier": translation.tier,
        "model": translation.model,
    }
    if translation.degraded:
        fields["degraded"] = True
        fields["degraded_reason"] = translation.degraded_reason
    if translation.bias:
        fields["bias"] = translation.bias
    if translation.masked:
        fields["masked"] = translation.masked
    if translation.alternatives:
        fields["alternatives"] = translation.alternatives
    if translation.alignment:
        fields["alignment"] = [msgspec.structs.astuple(pair) for pair in translation.alignment]
    if translation.segments:
        fields["segments"] = [_segment(segment) for segment in translation.segments]
    return fields


def _segment(segment: SegmentText) -> dict[str, object]:
    fields: dict[str, object] = {
        "text": segment.text,
        "start": segment.start,
        "end": segment.end,
        "tier": segment.tier,
        "model": segment.model,
    }
    if segment.degraded:
        fields["degraded"] = True
    return fields
