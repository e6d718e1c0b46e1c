"""The door: bytes or a message from outside become a `ValidRequest`, once. Inside, nobody checks again.

Raises InvalidRequest with the code, and the field, item or position in the detail; never the text itself.
An absent field and `null` mean the default. A field that isn't known is refused by name: a misspelt `deadline_ms` that
is silently ignored costs its user more than an error does.
"""

from __future__ import annotations

import re

import msgspec

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.harmless import harmless_id as harmless_id
from nearsay.wire.harmless import harmless_trace as harmless_trace
from nearsay.wire.messages import Decoding, Priority, Stability, Tier, Translate
from nearsay.wire.options import valid_decoding, valid_stability
from proxy.core.catalogue import Catalogue
from proxy.core.endpoint import pair_name
from proxy.core.fleet import Features
from proxy.core.limits import RequestLimits
from proxy.core.pool import Work
from proxy.core.transcript import Transcript
from proxy.request_text import check_texts, decode

_SURROGATE = re.compile("[\ud800-\udfff]")
_PRINTABLE_NAME = re.compile(r"[\x21-\x7e]*")
_CODE_CHARS_MAX = 32
_DETAIL_CHARS_MAX = 240


class StabilityBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `Stability`."""

    bias: float | None = None
    mask: int | None = None


class TranslateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of `POST /v1/translate`, typed but not yet checked."""

    text: str | list[str]
    target: str
    source: str | None = None
    tier: Tier | None = None
    priority: Priority | None = None
    deadline_ms: float | None = None
    stream: bool | None = None
    session: str | None = None
    segments: bool | None = None
    stability: StabilityBody | None = None
    beam: int | None = None
    length_penalty: float | None = None
    alternatives: int | None = None
    alignment: bool | None = None


class ValidRequest(msgspec.Struct, frozen=True):
    """A request that can be translated as it stands: limits kept, codes known, pair served."""

    texts: tuple[str, ...]
    source: str
    target: str
    tier: Tier
    priority: Priority
    deadline_ms: float
    stream: bool
    segments: bool
    session: str
    chars: int  # code points of all texts
    stability: Stability | None = None
    decoding: Decoding | None = None

    def work(self, tenant: str) -> Work:
        """What its attempts need to know of it."""
        pair = pair_name(self.source, self.target)
        return Work.of(
            pair,
            self.tier,
            self.priority,
            self.chars,
            streamed=self.stream,
            session=bool(self.session),
            tenant=tenant,
        )

    def features(self, *, tenant: str, country: str) -> Features:
        """What of it decides its region."""
        return Features(
            pair=pair_name(self.source, self.target),
            tier=self.tier,
            priority=self.priority,
            chars=self.chars,
            tenant=tenant,
            country=country,
            session=self.session,
            deadline_ms=self.deadline_ms,
        )

    def message(
        self,
        *,
        request_id: str,
        tenant: str,
        tier: Tier,
        budget_ms: float,
        attempt: int,
        attempts_left: int,
        traceparent: str,
        transcript: Transcript,
    ) -> Translate:
        """What goes to an edge: `tier` may stand in for the one asked for, `transcript` is of the attempts before."""
        return Translate(
            request_id=request_id,
            texts=self.texts,
            source=self.source,
            target=self.target,
            tier=tier,
            priority=self.priority,
            budget_ms=budget_ms,
            stream=self.stream,
            segments=self.segments,
            session=self.session,
            tenant=tenant,
            attempt=attempt,
            attempts_left=attempts_left,
            traceparent=traceparent,
            done=transcript.done,
            models=tuple(sorted(transcript.models)),
            stability=self.stability,
            decoding=self.decoding,
        )


def from_json(body: bytes, limits: RequestLimits, catalogue: Catalogue, *, stream: bool = False) -> ValidRequest:
    """A request from an HTTP body. `stream`: the client's Accept header asks for events, whatever the body says.

    Raises InvalidRequest: invalid_json, invalid_request, and all that `_valid` raises.
    """
    try:
        fields = msgspec.convert(decode(body), TranslateBody)
    except msgspec.ValidationError as error:
        raise InvalidRequest(_named(str(error))) from None
    priority = fields.priority or "interactive"
    default_ms = limits.batch_deadline_ms if priority == "batch" else limits.interactive_deadline_ms
    return _valid(
        limits,
        catalogue,
        texts=(fields.text,) if isinstance(fields.text, str) else tuple(fields.text),
        source=fields.source if fields.source is not None else "auto",
        target=fields.target,
        tier=fields.tier or "auto",
        priority=priority,
        deadline_ms=default_ms if fields.deadline_ms is None else fields.deadline_ms,
        stream=stream or bool(fields.stream),
        segments=bool(fields.segments),
        session=fields.session or "",
        stability=_stability(fields),
        decoding=_decoding(fields),
    )


def from_message(message: Translate, limits: RequestLimits, catalogue: Catalogue) -> ValidRequest:
    """A request from an SDK over the link; its types are already right. Raises as `_valid` does."""
    return _valid(
        limits,
        catalogue,
        texts=message.texts,
        source=message.source,
        target=message.target,
        tier=message.tier,
        priority=message.priority,
        deadline_ms=message.budget_ms,
        stream=message.stream,
        segments=message.segments,
        session=message.session,
        stability=message.stability,
        decoding=message.decoding,
    )


def _valid(
    limits: RequestLimits,
    catalogue: Catalogue,
    *,
    texts: tuple[str, ...],
    source: str,
    target: str,
    tier: Tier,
    priority: Priority,
    deadline_ms: float,
    stream: bool,
    segments: bool,
    session: str,
    stability: Stability | None,
    decoding: Decoding | None,
) -> ValidRequest:
    """Raises InvalidRequest: empty_text, text_too_long, invalid_text, invalid_request, and as `_languages` does."""
    chars = check_texts(texts, limits)
    if not limits.deadline_ms_min <= deadline_ms <= limits.deadline_ms_max:
        span = f"{limits.deadline_ms_min:g} to {limits.deadline_ms_max:g}"
        raise InvalidRequest(f"deadline_ms: must be {span}")
    if len(session) > limits.session_chars_max or not _PRINTABLE_NAME.fullmatch(session):
        raise InvalidRequest(f"session: at most {limits.session_chars_max} printable ASCII characters, no spaces")
    stability = valid_stability(stability, session)
    decoding = valid_decoding(decoding, tier, stability)
    source, target = _languages(source, target, tier, catalogue)
    return ValidRequest(
        texts, source, target, tier, priority, deadline_ms, stream, segments, session, chars, stability, decoding
    )


def _stability(fields: TranslateBody) -> Stability | None:
    asked = fields.stability
    return None if asked is None else Stability(asked.bias, asked.mask or 0)


def _decoding(fields: TranslateBody) -> Decoding:
    return Decoding(fields.beam or 0, fields.length_penalty, fields.alternatives or 0, bool(fields.alignment))


def _languages(source: str, target: str, tier: Tier, catalogue: Catalogue) -> tuple[str, str]:
    """Codes as the models spell them. While no edge has ever been seen they stay as they are: that is a 503, not a 400.

    Raises InvalidRequest: detection_unavailable, unknown_language, unsupported_pair, tier_unavailable.
    """
    if source.lower() == "auto":
        detail = "source: can't be identified yet; name the language of the text, for example 'en'"
        raise InvalidRequest(detail, code="detection_unavailable")
    for field, code in (("source", source), ("target", target)):
        if not 0 < len(code) <= _CODE_CHARS_MAX or not _PRINTABLE_NAME.fullmatch(code):
            detail = f"{field}: a language code such as 'en' is needed"
            raise InvalidRequest(detail, code="unknown_language")
    return catalogue.resolve(source, target, tier) if catalogue else (source, target)


def _named(message: str) -> str:
    """msgspec's `Expected ... - at `$.text[1]`` with the field first: `text[1]: Expected ...`."""
    problem, found, path = message.rpartition(" - at `$")
    problem = f"{path.rstrip('`').lstrip('.') or 'body'}: {problem}" if found else message
    return _SURROGATE.sub("�", problem.replace("`", "'"))[:_DETAIL_CHARS_MAX]
