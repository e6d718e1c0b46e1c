"""Errors as RFC 9457 problem details: one JSON shape and one set of headers for every refusal of the proxy."""

from __future__ import annotations

import math

import orjson

from nearsay.wire.errors import NearsayError, RateLimited, http_status, title

MEDIA_TYPE = "application/problem+json"


def problem(error: NearsayError, request_id: str) -> dict[str, object]:
    """The problem object: `code` is stable and for programs, `title` and `detail` are for people."""
    fields: dict[str, object] = {
        "type": f"urn:nearsay:problem:{error.code}",
        "title": title(error),
        "status": http_status(error),
        "code": error.code,
        "request_id": request_id,
    }
    if error.detail:
        fields["detail"] = error.detail
    if error.retry_after_ms is not None:
        fields["retry_after_ms"] = error.retry_after_ms
    if isinstance(error, RateLimited) and error.policy:
        fields["violated-policies"] = [error.policy]  # as draft-ietf-httpapi-ratelimit-headers names it
    return fields


def problem_bytes(error: NearsayError, request_id: str) -> bytes:
    """The problem object as JSON."""
    return orjson.dumps(problem(error, request_id))


def problem_headers(error: NearsayError, request_id: str) -> dict[str, str]:
    """Headers that belong to the error, whatever carries it."""
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", "X-Request-ID": request_id}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000.0)))
    if error.code == "unauthorised":
        headers["WWW-Authenticate"] = "Bearer"
    return headers
