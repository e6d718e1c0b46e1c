"""A request's body: its type checked, read within a size and a time, its Content-Encoding undone within a bound."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from aiohttp import web

from nearsay.wire.errors import Cancelled, InvalidRequest
from proxy import compress
from proxy.core.limits import RequestLimits

Body = TypeVar("Body", bytes, bytearray)


async def read_body(request: web.Request, limits: RequestLimits) -> bytes:
    """The JSON bytes of a request.

    Raises InvalidRequest: unsupported_media_type, body_too_large, request_timeout, invalid_request; Cancelled.
    """
    _check_type(request)
    if (request.content_length or 0) > limits.body_bytes_max:
        raise _too_large(limits)
    body = await _read(request, limits)
    encoding = request.headers.get("Content-Encoding")
    return body if encoding is None else await compress.decompress(body, encoding, limits.decoded_bytes_max)


def _check_type(request: web.Request) -> None:
    """JSON in UTF-8 by name. Anything else would let a web page post here without asking its user (CSRF)."""
    header = request.headers.get("Content-Type", "application/json")
    if header == "application/json":
        return
    kind, charset = request.content_type, request.charset or "utf-8"
    if not (kind == "application/json" or kind.endswith("+json")) or charset.lower() not in ("utf-8", "utf8"):
        detail = "Content-Type: 'application/json' in UTF-8 is needed"
        raise InvalidRequest(detail, code="unsupported_media_type")


async def _read(request: web.Request, limits: RequestLimits) -> bytes:
    content = request.content
    try:
        if content.is_eof():  # a small body came with its headers
            return _bounded(content.read_nowait(), limits)
        body = bytearray()
        async with asyncio.timeout(limits.body_timeout_s):
            while chunk := await content.readany():
                body += chunk
                _bounded(body, limits)
        return bytes(body)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.body_timeout_s:g} s"
        raise InvalidRequest(detail, code="request_timeout") from None
    except web.RequestPayloadError:
        raise InvalidRequest("the body broke off or its chunks are malformed") from None
    except ConnectionError:
        raise Cancelled("the client left") from None


def _bounded(body: Body, limits: RequestLimits) -> Body:
    if len(body) > limits.body_bytes_max:
        raise _too_large(limits)
    return body


def _too_large(limits: RequestLimits) -> InvalidRequest:
    return InvalidRequest(f"the body has more than {limits.body_bytes_max} bytes", code="body_too_large")
