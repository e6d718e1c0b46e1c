"""What a caller named itself by: taken over only where it can do no harm in logs, headers and traces.

Decides: whether an id or a trace is of a form that can stand anywhere as it is.
Must not know: where it stood, what it will be used for.
Invariants: what comes back is what was given, or nothing.
"""

from __future__ import annotations

import re

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context


def harmless_id(given: str) -> str:
    """A caller's own request id if it can stand in logs and headers as it is, else nothing."""
    return given if _REQUEST_ID.fullmatch(given) else ""


def harmless_trace(given: str) -> str:
    """A caller's traceparent if it is one, else nothing."""
    return given if _TRACEPARENT.fullmatch(given) else ""
