"""The door: bytes or a message from outside become a `ValidRequest`, once. Inside, nobody checks again.

Raises InvalidRequest with the code, and the field, item or position in the detail; never the text itself.
An absent field and `null` mean the default. A field that isn't known is refused by name: a misspelt `deadline_ms` that
is silently ignored costs its user more than an error does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec
import orjson

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.harmless import harmless_id as harmless_id
from nearsay.wire.harmless import harmless_trace as harmless_trace
from nearsay.wire.messages import Decoding, Priority, Stability, Tier, Translate
from nearsay.wire.options import valid_decoding, valid_stability
from proxy.core.catalogue import Catalogue
from proxy.core.endpoint import pair_name
from proxy.core.fleet import Features
from proxy.core.limits import RequestLimits

# An escape of half a surrogate pair may be in there: orjson refuses it without saying in which string.
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
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
        self, *, request_id: str, budget_ms: float, attempt: int, attempts_left: int, traceparent: str, tenant: str
    ) -> Translate:
        """What goes to an edge."""
        return Translate(
            request_id=request_id,
            texts=self.texts,
            source=self.source,
            target=self.target,
            tier=self.tier,
            priority=self.priority,
            budget_ms=budget_ms,
            stream=self.stream,
            segments=self.segments,
            session=self.session,
            tenant=tenant,
            attempt=attempt,
            attempts_left=attempts_left,
            traceparent=traceparent,
            stability=self.stability,
            decoding=self.decoding,
        )


def from_json(body: bytes, limits: RequestLimits, catalogue: Catalogue, *, stream: bool = False) -> ValidRequest:
    """A request from an HTTP body. `stream`: the client's Accept header asks for events, whatever the body says.

    Raises InvalidRequest: invalid_json, invalid_request, and all that `_valid` raises.
    """
    try:
        fields = msgspec.convert(_decode(body), TranslateBody)
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
    chars = _check_texts(texts, limits)
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


def _check_texts(texts: Sequence[str], limits: RequestLimits) -> int:
    """Code points of all texts. Raises InvalidRequest: empty_text, text_too_long, invalid_text."""
    if not texts:
        raise InvalidRequest("text: the list is empty", code="empty_text")
    if len(texts) > limits.texts_max:
        detail = f"text: {len(texts)} items, at most {limits.texts_max} in one request"
        raise InvalidRequest(detail, code="text_too_long")
    total = 0
    for item, text in enumerate(texts):
        if not text or text.isspace():
            raise InvalidRequest(f"text[{item}]: nothing to translate", code="empty_text")
        if len(text) > limits.text_chars_max:
            detail = f"text[{item}]: {len(text)} characters, at most {limits.text_chars_max} in one text"
            raise InvalidRequest(detail, code="text_too_long")
        _check_characters(item, text)
        total += len(text)
    if total > limits.total_chars_max:
        detail = f"text: {total} characters in all, at most {limits.total_chars_max} in one request"
        raise InvalidRequest(detail, code="text_too_long")
    return total


def _check_characters(item: int, text: str) -> None:
    at = text.find("\0")
    if at >= 0:
        raise InvalidRequest(f"text[{item}]: NUL at character {at}", code="invalid_text")
    if text.isascii():
        return
    lone = _lone_surrogate(text)
    if lone is not None:
        raise InvalidRequest(f"text[{item}]: lone surrogate at character {lone}", code="invalid_text")


def _lone_surrogate(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def _decode(body: bytes) -> object:
    """JSON to plain objects. orjson bounds the nesting and refuses NaN, infinities and invalid UTF-8."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if _SURROGATE_ESCAPE.search(body):
            return _decode_with_surrogates(body)
        raise InvalidRequest(_position(error), code="invalid_json") from None


def _decode_with_surrogates(body: bytes) -> object:
    """The same JSON read by a parser that lets lone surrogates through, so that the item and position can be named.

    Only for bodies that orjson has refused: it never accepts what orjson wouldn't, but for the surrogates in `text`.
    """
    try:
        decoded = json.loads(body)
    except json.JSONDecodeError as error:
        raise InvalidRequest(_position(error), code="invalid_json") from None
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nesting that no request has
        raise InvalidRequest("nested too deeply, or a number too large", code="invalid_json") from None
    text = decoded.get("text") if isinstance(decoded, dict) else None
    for item, value in enumerate(text if isinstance(text, list) else [text]):
        lone = _lone_surrogate(value) if isinstance(value, str) else None
        if lone is not None:
            raise InvalidRequest(f"text[{item}]: lone surrogate at character {lone}", code="invalid_text")
    raise InvalidRequest("a string holds a lone surrogate", code="invalid_json")


def _position(error: json.JSONDecodeError) -> str:
    return f"{error.msg} at line {error.lineno}, column {error.colno}"


def _named(message: str) -> str:
    """msgspec's `Expected ... - at `$.text[1]`` with the field first: `text[1]: Expected ...`."""
    problem, found, path = message.rpartition(" - at `$")
    problem = f"{path.rstrip('`').lstrip('.') or 'body'}: {problem}" if found else message
    return _SURROGATE.sub("�", problem.replace("`", "'"))[:_DETAIL_CHARS_MAX]
