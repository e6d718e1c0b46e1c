"""What a client may do at the edges that it asks directly.

Decides: the rates of a grant.
Must not know: keys, tokens, which client it is, who meters the grant.
Invariants: all edges together give a tenant at most `share` of its own limits, however many clients hold grants; a
grant is never for a higher class than the tenant's. What is refused at an edge may still be answered by the proxy,
where the tenant's whole limits are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nearsay.wire.grant import GRANT_S, Grant
from proxy.core.routing_config import Positive, Share, Tenant


class DirectLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What grants give. The rates of a tenant without limits of its own are one edge's."""

    share: Share = 0.5  # of a tenant's limits
    requests_per_s: Positive = 50.0
    chars_per_s: Positive = 50_000.0
    concurrency_max: int = 64
    addresses_max: int = 3  # regions that a client is told of, and probes


def granted(
    name: str, tenant: Tenant, regions: Sequence[str], edges: int, limits: DirectLimits, wall_s: float
) -> Grant:
    """A grant for a tenant in some regions. `edges`: how many of them could meter it, each for itself."""
    part = limits.share / max(1, edges)
    concurrency = tenant.concurrency_max * part if tenant.concurrency_max else limits.concurrency_max
    return Grant(
        tenant=name,
        regions=tuple(regions),
        expires=wall_s + GRANT_S,
        priority_max=tenant.priority_max,
        requests_per_s=tenant.requests_per_s * part or limits.requests_per_s,
        chars_per_s=tenant.chars_per_s * part or limits.chars_per_s,
        burst_s=tenant.burst_s,
        concurrency_max=max(1, int(concurrency)),
    )
