"""The proxy's regions and tenants as steering sees them."""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.wire.messages import Tier
from proxy.core.routing_config import DEFAULT_REGION, Tenant
from proxy.core.steer import Target
from proxy.edges import EdgePool


class OneRegion:
    """A proxy without a routing config: one region, which has no address for clients."""

    def __init__(self, pool: EdgePool) -> None:
        self._pool = pool

    @property
    def default_region(self) -> str:
        return DEFAULT_REGION

    def targets(self, pair: str, tier: Tier, tenant: str, country: str) -> Sequence[Target]:
        ready = any(endpoint.available and endpoint.serves(pair, tier) for endpoint in self._pool.endpoints)
        return (Target(DEFAULT_REGION, (), ready=ready),)

    def edges(self, region: str) -> int:
        return len(self._pool.endpoints)

    def tenant(self, name: str) -> Tenant:
        return Tenant()
