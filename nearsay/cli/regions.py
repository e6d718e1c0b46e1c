"""Regions on one machine: `nearsay up --regions 3` puts a relay of some distance before each of three edge workers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from nearsay.cli.ports import HOST, ServicePorts

VERSION = "emulated"


class EmulatedRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A region by name: how far it is from the proxy, and where it would stand."""

    name: str
    rtt_ms: float
    location: tuple[float, float]
    cost: float = 1.0

    @property
    def service(self) -> str:
        """Its edge worker's name."""
        return f"edge-{self.name}"


# Round trips as they are from Frankfurt.
REGIONS = (
    EmulatedRegion(name="eu", rtt_ms=4.0, location=(50.1, 8.7)),
    EmulatedRegion(name="us", rtt_ms=90.0, location=(39.0, -77.5), cost=0.8),
    EmulatedRegion(name="ap", rtt_ms=160.0, location=(1.35, 103.8), cost=0.6),
    EmulatedRegion(name="sa", rtt_ms=205.0, location=(-23.5, -46.6)),
    EmulatedRegion(name="au", rtt_ms=280.0, location=(-33.9, 151.2)),
)
REGIONS_MAX = len(REGIONS)


class Distance(msgspec.Struct, frozen=True):
    """A relay to start: it listens on `port` and is `rtt_ms` before an edge worker's port."""

    region: EmulatedRegion
    port: int
    edge: ServicePorts


def routing_toml(distances: Sequence[Distance]) -> str:
    """The routing config of the emulated regions."""
    text = f'version = "{VERSION}"\n'
    for distance in distances:
        region = distance.region
        fields = {
            "edges": [f"ws://{HOST}:{distance.port}/link"],
            "location": list(region.location),
            "cost": region.cost,
        }
        text += f"\n[regions.{region.name}]\n" + "".join(f"{key} = {json.dumps(fields[key])}\n" for key in fields)
    return text
