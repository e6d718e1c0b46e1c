"""Whose key is good.

Decides: whether a caller's key admits it.
Must not know: where keys come from on a request, what a caller may do (quotas are not here).
Invariants: no keys configured = everybody is admitted (config allows that on loopback only); keys are never shown; all
are compared in full, so that the time taken doesn't tell which one was close.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable


class Keys:
    """The configured keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    def admit(self, key: str) -> bool:
        """Whether `key` is one of them, or none are needed."""
        given = key.encode("utf-8", "surrogateescape")
        return not self._keys or sum(hmac.compare_digest(given, known) for known in self._keys) > 0
