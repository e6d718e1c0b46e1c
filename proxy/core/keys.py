"""Whose key it is.

Decides: which tenant a shown key stands for, and what a good key looks like in a config.
Must not know: where a request carries its key, what a tenant may do (quota.py, routing.py).
Invariants: only hashes are kept; no key configured anywhere = whoever comes is the default tenant, but only with
`open_door`, on loopback: a reload that takes the last key away elsewhere shuts the door and doesn't open it; one
constant-time comparison a look-up, for good keys and bad, however many there are.

Plain SHA-256 is right for keys that a machine drew: of 2^256 none is found by trying, salted and slow or not. A slow
hash protects what people choose, and would cost each request milliseconds that strangers decide about.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256

from proxy.core.routing_config import DEFAULT_TENANT, Tenant

SHOWN_CHARS_MAX = 512  # longer ones are nobody's: strangers don't decide how much is hashed
_NOBODY = "sha256:" + "0" * 64
_INDEX_CHARS = 7 + 32  # half of a hash finds the whole one to compare with: no two keys share it by chance
# How the Authorization header may carry a key; a dialect's own scheme is one more name here.
SCHEMES = frozenset({"bearer"})


def key_hash(key: str) -> str:
    """What stands in a config for a key: "sha256:" and 64 hex digits."""
    return "sha256:" + sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def shown_key(authorization: str) -> str:
    """The key in an Authorization header, "" when there is none."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() in SCHEMES else ""


class Keys:
    """Immutable: rotation swaps it for another one. An `id` names a key without being one."""

    def __init__(self, plain: Iterable[str], tenants: Mapping[str, Tenant], *, open_door: bool) -> None:
        """`plain`: keys of the default tenant as they are. `open_door`: without any key, whoever comes is let in."""
        self._tenants = {key_hash(key): DEFAULT_TENANT for key in plain}
        self._tenants |= {key: name for name, tenant in tenants.items() for key in tenant.keys}
        self._known = {hashed[:_INDEX_CHARS]: hashed for hashed in self._tenants}
        self._open = open_door and not self._tenants

    def id(self, shown: str) -> str | None:
        """The id of a shown key, None when it is nobody's."""
        if self._open:
            return ""
        hashed = key_hash(shown[:SHOWN_CHARS_MAX])
        good = hmac.compare_digest(hashed, self._known.get(hashed[:_INDEX_CHARS], _NOBODY))
        return hashed if good and len(shown) <= SHOWN_CHARS_MAX else None

    def tenant(self, key_id: str | None) -> str | None:
        """Whose key an id names now: None once it was taken away, which ends what an open link may do."""
        if self._open:
            return DEFAULT_TENANT
        return None if key_id is None else self._tenants.get(key_id)
