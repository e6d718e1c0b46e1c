"""The proxy's regions and tenants as steering sees them: the fleet's, with what clients may know of each."""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.wire.messages import Tier
from proxy.core.fleet import Features, Fleet
from proxy.core.routing_config import Tenant
from proxy.core.steer import Target


class FleetRegions:
    """Reads the fleet as it is at each question: its config may have been reloaded since the last one."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @property
    def default_region(self) -> str:
        """The one of clients whose place isn't known."""
        config = self._fleet.config
        return config.default_region or next(iter(config.regions))

    def targets(self, pair: str, tier: Tier, tenant: str, country: str) -> Sequence[Target]:
        """The regions that `forward` might send such a request to, by the same rules."""
        features = Features(pair=pair, tier=tier, tenant=tenant, country=country)
        return [
            Target(
                region.name,
                region.config.public,
                region.config.location,
                ready=any(endpoint.available and endpoint.serves(pair, tier) for endpoint in region.endpoints),
            )
            for region in self._fleet.class_of(features).regions
        ]

    def edges(self, region: str) -> int:
        """How many edges a region has."""
        return len(self._fleet.config.regions[region].edges)

    def tenant(self, name: str) -> Tenant:
        """A tenant's limits; without any, a plain Tenant."""
        return self._fleet.config.tenants.get(name) or Tenant()
