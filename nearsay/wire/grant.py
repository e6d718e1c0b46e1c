"""Grants: a proxy's signed word that a client may ask an edge directly, for a minute, within its tenant's share.

Decides: what a grant says, and whether a token is one of ours that still holds.
Must not know: links, who is steered where, how use is metered.
Invariants: nothing of a token is read before its signature is found good, in constant time; a grant lasts GRANT_S at
most, whatever a proxy's clock says, and a holder's clock is never asked. Clocks of proxy and edge may differ by SKEW_S.
A copied token gives no more than the original: its use is metered by tenant, not by token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import sha256
from typing import Annotated

import msgspec

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Priority

GRANT_S = 60.0
SKEW_S = 5.0
TOKEN_CHARS_MAX = 4096
TOKEN_START = "grant1."
_MAC_BYTES = 32
# A key is used for one thing: the secret that links show is never itself the key of a signature.
_PURPOSE = b"nearsay grant 1"

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """What the holder may do at each edge of `regions`. The rates are for all holders of a tenant together."""

    tenant: str
    regions: tuple[str, ...]
    expires: float  # seconds since the epoch, by the proxy's clock
    priority_max: Priority = "interactive"
    requests_per_s: Positive = 1.0
    chars_per_s: Positive = 1000.0
    burst_s: Positive = 10.0  # so many seconds' worth may come at once
    concurrency_max: Annotated[int, msgspec.Meta(ge=1)] = 1


class GrantKey:
    """Signs and verifies with a key made from a secret that proxies and edges share."""

    def __init__(self, secret: str) -> None:
        assert secret, "anybody could sign with no secret"
        self._key = hmac.digest(secret.encode(), _PURPOSE, sha256)

    def sign(self, grant: Grant) -> str:
        """The token of a grant: printable ASCII."""
        body = msgspec.msgpack.encode(grant)
        return TOKEN_START + _text(self._mac(body) + body)

    def verify(self, token: str) -> Grant:
        """The grant of a token that was signed with this key, held or expired. Raises InvalidRequest(grant_invalid)."""
        signed = _bytes(token)
        mac, body = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise InvalidRequest("not signed by a proxy of this service", code="grant_invalid")
        try:
            return msgspec.msgpack.decode(body, type=Grant)
        except msgspec.MsgspecError:  # signed by another version of ours
            raise InvalidRequest("of another version", code="grant_invalid") from None

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, sha256)


def check_time(grant: Grant, now: float) -> None:
    """Whether a grant holds at `now`, seconds since the epoch.

    Raises InvalidRequest: grant_expired; grant_invalid for one that lasts longer than any grant may.
    """
    if now > grant.expires + SKEW_S:
        raise InvalidRequest("ask the proxy for a new one", code="grant_expired")
    if not grant.expires <= now + GRANT_S + SKEW_S:
        raise InvalidRequest("it lasts too long: compare the clocks of proxy and edge", code="grant_invalid")


def is_grant(shown: str) -> bool:
    """Whether what a hello shows is meant as a grant, not as a secret."""
    return shown.startswith(TOKEN_START)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(token: str) -> bytes:
    if len(token) > TOKEN_CHARS_MAX or not is_grant(token):
        return b""
    text = token.removeprefix(TOKEN_START)
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return b""
