"""Errors that may cross a process boundary.

NearsayError
├── InvalidRequest        the request is wrong; retrying it can't help
├── RateLimited           the tenant's limits are used up until `retry_after_ms` from now
├── Overloaded            shed for load; retry after `retry_after_ms`
├── Unavailable           nobody can answer now; retryable
│   └── LinkLost          the link broke while the request was on it
├── DeadlineExceeded      out of time
├── Cancelled             the caller left
└── InternalError         our fault

Each carries a stable `code` (the table below), never a sentence as its identity; `detail` is for people.
"""

from __future__ import annotations

from typing import ClassVar

from nearsay.wire.messages import Priority


class NearsayError(Exception):
    """Base. `code` is stable and machine-readable; `retryable` says whether the same request may succeed elsewhere."""

    default_code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str = "", *, code: str | None = None, retry_after_ms: float | None = None) -> None:
        self.code = code or self.default_code
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        super().__init__(f"{self.code}: {detail}" if detail else self.code)


class InvalidRequest(NearsayError):
    default_code = "invalid_request"


class RateLimited(NearsayError):
    """Where it is raised it knows which limit it was (`policy`) and of which class; a link carries neither."""

    default_code = "rate_limited"

    def __init__(
        self,
        detail: str = "",
        *,
        code: str | None = None,
        retry_after_ms: float | None = None,
        policy: str = "",
        priority: Priority = "interactive",
    ) -> None:
        super().__init__(detail, code=code, retry_after_ms=retry_after_ms)
        self.policy = policy
        self.priority = priority


class Overloaded(NearsayError):
    default_code = "overloaded"
    retryable = True


class Unavailable(NearsayError):
    default_code = "unavailable"
    retryable = True


class LinkLost(Unavailable):
    default_code = "link_lost"


class DeadlineExceeded(NearsayError):
    default_code = "deadline_exceeded"


class Cancelled(NearsayError):
    default_code = "cancelled"


class InternalError(NearsayError):
    default_code = "internal_error"


# code -> (class, HTTP status, title). A new code is added here and nowhere else.
CODES: dict[str, tuple[type[NearsayError], int, str]] = {
    "invalid_request": (InvalidRequest, 400, "The request is not valid"),
    "invalid_json": (InvalidRequest, 400, "The body is not valid JSON"),
    "invalid_text": (InvalidRequest, 400, "The text can't be translated as given"),
    "empty_text": (InvalidRequest, 400, "There is no text to translate"),
    "unsupported_media_type": (InvalidRequest, 415, "The body's content type or encoding is not supported"),
    "body_too_large": (InvalidRequest, 413, "The body is too large"),
    "text_too_long": (InvalidRequest, 413, "The text is too long"),
    "unknown_language": (InvalidRequest, 400, "The language is not known"),
    "unsupported_pair": (InvalidRequest, 400, "The language pair is not served"),
    "detection_unavailable": (InvalidRequest, 400, "Language identification is not available yet"),
    "tier_unavailable": (InvalidRequest, 400, "The pair has no model in the tier asked for"),
    "unauthorised": (InvalidRequest, 401, "The key or secret is not valid"),
    "grant_invalid": (InvalidRequest, 401, "The grant is not valid"),
    "grant_expired": (InvalidRequest, 401, "The grant has expired"),
    "not_found": (InvalidRequest, 404, "No such resource"),
    "method_not_allowed": (InvalidRequest, 405, "The method is not allowed here"),
    "unknown_model": (InvalidRequest, 400, "The model is not served"),
    "model_mismatch": (InvalidRequest, 409, "The vocabulary of the request is not the model's"),
    "source_too_long": (InvalidRequest, 413, "The segment has too many tokens"),
    "rate_limited": (RateLimited, 429, "The limits of this key are used up for now"),
    "overloaded": (Overloaded, 503, "Too busy; try again later"),
    "too_many_streams": (Overloaded, 503, "Too many requests on this link"),
    "unavailable": (Unavailable, 503, "Nobody can answer this now"),
    "edge_unavailable": (Unavailable, 503, "No edge worker can be reached"),
    "origin_unavailable": (Unavailable, 503, "No origin can be reached"),
    "region_unavailable": (Unavailable, 503, "No region that may translate this can do so now"),
    "draining": (Unavailable, 503, "The service is shutting down"),
    "link_lost": (LinkLost, 503, "The link broke while the request was on it"),
    "deadline_exceeded": (DeadlineExceeded, 504, "The deadline passed"),
    "cancelled": (Cancelled, 499, "The client left"),
    "internal_error": (InternalError, 500, "Something broke on our side"),
    "request_timeout": (InvalidRequest, 408, "The body did not arrive in time"),
}


def from_code(code: str, detail: str = "", retry_after_ms: float | None = None) -> NearsayError:
    """The error that a peer's code stands for; an unknown code becomes InternalError with the code kept."""
    kind = CODES.get(code, (InternalError, 500, ""))[0]
    return kind(detail, code=code, retry_after_ms=retry_after_ms)


def http_status(error: NearsayError) -> int:
    """HTTP status of an error, 500 for an unknown code."""
    return CODES.get(error.code, (InternalError, 500, ""))[1]


def title(error: NearsayError) -> str:
    """Short human title of an error's code."""
    return CODES.get(error.code, (InternalError, 500, "Something broke on our side"))[2]
