"""What the SDK asks of `GET /v1/route`, what it makes of the answer, and how far away each edge is.

Decides: which address of those told is worth a direct link. Nothing here raises: what can't be had is None, and the
client stays with its proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

PROBES_MAX = 4  # addresses probed at once
PROBE_TIMEOUT_S = 1.5  # for both requests; who takes longer isn't near
ASK_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 64 << 10
# A link is moved only for what can be felt: shares and milliseconds.
BETTER_RATIO, BETTER_MS = 0.8, 5.0


class Address(msgspec.Struct, frozen=True):
    """Where an edge takes links, and where it can be probed."""

    link: str
    probe: str


class Region(msgspec.Struct, frozen=True):
    """One region that the proxy told of."""

    region: str
    addresses: tuple[Address, ...] = ()


class Route(msgspec.Struct, frozen=True):
    """The answer. `grant` "" = ask the proxy."""

    regions: tuple[Region, ...] = ()
    grant: str = ""
    grant_s: float = 0.0

    def tells(self, link: str) -> bool:
        """Whether an address is among those told."""
        return any(address.link == link for region in self.regions for address in region.addresses)


class Measured(msgspec.Struct, frozen=True):
    """One address and its round trip."""

    region: str
    link: str
    rtt_ms: float


async def ask_route(
    http: aiohttp.ClientSession, url: str, key: str, pair: str, measured: Sequence[Measured]
) -> Route | None:
    """The proxy's answer, None for a proxy that has none."""
    query = {"pair": pair}
    if measured:
        query["probes"] = ",".join(f"{one.region}:{one.rtt_ms:.3f}" for one in nearest_of_each(measured))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            asyncio.timeout(ASK_TIMEOUT_S),
            http.get(f"{url}/v1/route?{urlencode(query, safe=',:')}", headers=headers) as response,
        ):
            if response.status != 200:
                return None
            route = msgspec.json.decode(await response.content.read(ANSWER_BYTES_MAX), type=Route)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # msgspec's errors are ValueErrors
        return None
    return usable(route, url)


def usable(route: Route, url: str) -> Route:
    """The answer without addresses that a client of `url` should not use: plain ones, when the proxy is on TLS."""
    schemes = ("wss", "https") if urlsplit(url).scheme == "https" else ("wss", "https", "ws", "http")
    regions = []
    for region in route.regions:
        good = tuple(a for a in region.addresses if {_scheme(a.link), _scheme(a.probe)} <= set(schemes))
        regions += [Region(region.region, good)] if good else []
    return msgspec.structs.replace(route, regions=tuple(regions))


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


async def probe(http: aiohttp.ClientSession, route: Route) -> list[Measured]:
    """Round trips to the first addresses of the answer, nearest first; those that don't answer are left out."""
    firsts = [(region.region, address) for region in route.regions for address in region.addresses[:1]]
    others = [(region.region, address) for region in route.regions for address in region.addresses[1:]]
    found = await asyncio.gather(*(_probe_one(http, *entry) for entry in (firsts + others)[:PROBES_MAX]))
    return sorted((one for one in found if one is not None), key=lambda one: one.rtt_ms)


async def _probe_one(http: aiohttp.ClientSession, region: str, address: Address) -> Measured | None:
    """The first request opens the connection; the second one, on it, is the round trip."""
    rtt_ms = 0.0
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            for _ in range(2):
                began = time.perf_counter()
                async with http.get(address.probe, allow_redirects=False) as response:
                    if response.status != 204:
                        return None
                rtt_ms = (time.perf_counter() - began) * 1e3
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None
    return Measured(region, address.link, rtt_ms)


def nearest_of_each(measured: Sequence[Measured]) -> list[Measured]:
    """One for each region."""
    best: dict[str, Measured] = {}
    for one in measured:
        if one.region not in best or one.rtt_ms < best[one.region].rtt_ms:
            best[one.region] = one
    return list(best.values())


def choose(measured: Sequence[Measured], current: str) -> str | None:
    """The address of the direct link: the present one unless another is clearly nearer. None = none answers."""
    if not measured:
        return None
    best = min(measured, key=lambda one: one.rtt_ms)
    now = next((one for one in measured if one.link == current), None)
    if now is None:
        return best.link
    clearly = best.rtt_ms < now.rtt_ms * BETTER_RATIO and best.rtt_ms + BETTER_MS < now.rtt_ms
    return best.link if clearly else current
