"""What a body of JSON holds, and whether its texts can be translated at all.

Raises InvalidRequest with the item or position in the detail; never the text itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import orjson

from nearsay.wire.errors import InvalidRequest
from proxy.core.limits import RequestLimits

# An escape of half a surrogate pair may be in there: orjson refuses it without saying in which string.
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def check_texts(texts: Sequence[str], limits: RequestLimits) -> int:
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


def decode(body: bytes) -> object:
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
