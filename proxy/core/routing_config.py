"""The routing config: what an operator says about regions, pairs, residency and tenants. One TOML file.

Decides: names, types, defaults and the bounds of single values. Rules between values: routing_check.py.
Must not know: files, links, requests.
Invariants: frozen; a loaded config is complete, so that one reference is swapped at a reload and nothing is half new.
Without such a file the proxy has one region, `default`, of the `edges` in its own config.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from nearsay.wire.messages import Priority

DEFAULT_REGION = "default"
DEFAULT_TENANT = "default"  # of requests without a key, and of the plain `keys` in a proxy's own config

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One region: a pool of like edge workers and where it stands."""

    edges: tuple[str, ...]  # link addresses, ws:// or wss://
    public: tuple[str, ...] = ()  # what clients are told by GET /v1/route; none = clients aren't sent here directly
    location: tuple[float, float] | None = None  # latitude, longitude in degrees
    cost: Positive = 1.0  # of a character, beside other regions: batch work prefers the cheap ones
    in_flight_max: Annotated[int, msgspec.Meta(ge=1)] = 512  # requests; past it, the next region


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is special about a language pair."""

    regions: tuple[str, ...] = ()  # the only ones that may serve it; none = all that have it


class Spill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a request leaves the region that it would go to."""

    utilisation: Share = 0.8  # of a region's in_flight_max; from there on the next region is weighed as an equal
    margin_ms: NotNegative = 5.0  # another region must be expected this much faster to take a request over
    recovery_s: NotNegative = 5.0  # a region that was left is used again when it has looked well for so long


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who asks: keys, limits, where its texts may go. A limit of 0 is none."""

    keys: tuple[str, ...] = ()  # "sha256:" and 64 hex digits each; `nearsay keys new` makes one
    regions: tuple[str, ...] = ()  # residency: texts never leave them; none = anywhere
    priority_max: Priority = "interactive"
    chars_per_s: NotNegative = 0.0
    requests_per_s: NotNegative = 0.0
    burst_s: Positive = 10.0  # so many seconds' worth may come at once
    concurrency_max: Count = 0
    bulk_chars_min: Count = 1000  # an interactive request this long is bulk: over the limits it is served as batch
    batch_ratio: Positive = 1.0  # the batch class has so many times these limits, for itself


class RoutingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    regions: dict[str, Region]
    version: str = ""  # the operator's own name for it; the hash is computed
    default_region: str = ""  # of clients whose place isn't known; "" = the first one
    spill: Spill = Spill()
    pairs: dict[str, Pair] = {}
    residency: dict[str, tuple[str, ...]] = {}  # country code of the client: the only regions for its texts
    tenants: dict[str, Tenant] = {}
