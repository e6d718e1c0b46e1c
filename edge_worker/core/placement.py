"""Where one segment is translated: by the model here, by an origin, or by both (a draft here, refined there).

Decides: the place, and whether the answer counts as degraded (a worse tier than the request should have got).
Must not know: text, peers, engines, clocks. A table in prose: `edge` is always local; `origin` is always an origin or
an error; `refine` is both, local alone when no origin can be had; `auto` is local for short segments, an origin for
long ones, for those that the local queue would keep past their deadline, and for whatever only an origin can do.
Invariant: what is placed at an origin has one that is ready; what is placed locally has a local model.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nearsay.wire.errors import InvalidRequest, Unavailable
from nearsay.wire.messages import Tier

Place = Literal["local", "origin", "both"]
OriginState = Literal["none", "down", "ready"]  # none: no origin has, or will have, a model for the pair


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator tunes."""

    long_tokens: int = 64  # segments with more source tokens go to an origin under `auto`


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What placement looks at."""

    tier: Tier
    tokens: int  # source tokens of the segment
    local: bool  # there is a local model for the pair
    local_ms: float  # expected wait and run time here; only looked at under `auto`
    origin: OriginState
    budget_ms: float  # time left
    far: str = ""  # why an origin serves the request better than the model here, if it does: "session", "decoding"


class Placement(msgspec.Struct, frozen=True):
    """`degraded` is the reason why a worse tier answers than the request should have got, empty when none does."""

    place: Place
    reason: str
    degraded: str = ""


def place(facts: Facts, policy: Policy) -> Placement:
    """Place one segment. Raises InvalidRequest(tier_unavailable), Unavailable(origin_unavailable)."""
    if facts.tier == "edge":
        if not facts.local:
            raise InvalidRequest("no edge model for this pair", code="tier_unavailable")
        return Placement("local", "asked")
    if facts.tier == "origin" or not facts.local:
        _require_origin(facts.origin)
        return Placement("origin", "asked" if facts.tier == "origin" else "no_edge_model")
    if facts.tier == "refine":
        return _refine(facts)
    if facts.far:
        return _rather_origin(facts, facts.far)
    if facts.tokens > policy.long_tokens:
        return _rather_origin(facts, "long")
    if facts.local_ms > facts.budget_ms:
        return _rather_origin(facts, "queue")
    return Placement("local", "short")


def _refine(facts: Facts) -> Placement:
    if facts.origin == "ready":
        return Placement("both", "asked")
    return Placement("local", "refine", "origin_unavailable" if facts.origin == "down" else "tier_unavailable")


def _rather_origin(facts: Facts, reason: str) -> Placement:
    if facts.origin == "ready":
        return Placement("origin", reason)
    # Without any origin the edge is the best tier that the pair has: nothing is degraded.
    return Placement("local", reason, "origin_unavailable" if facts.origin == "down" else "")


def _require_origin(state: OriginState) -> None:
    if state == "none":
        raise InvalidRequest("no origin model for this pair", code="tier_unavailable")
    if state == "down":
        raise Unavailable("no origin with this pair can be reached", code="origin_unavailable")
