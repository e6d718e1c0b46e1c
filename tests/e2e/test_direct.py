"""Clients at edges, as real processes: steered, granted, answered there, and by the proxy when the edge dies."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nearsay.client import AsyncClient
from tests.e2e.stack import Stack
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.proxy.test_location import write

pytestmark = pytest.mark.e2e

SECRET, KEY = "between proxies and edges", "of a client"
TEXT = "The cat sat on the mat."
WITHIN_S = 30.0
# The client's address, as the load balancer in front would say, and its country; eu is near it.
ADDRESS, COUNTRY = "20.1.2.3", "DE"
ROUTING = """
default_region = "us"
{pinned}
[regions.eu]
edges = ["{eu}"]
public = ["{eu}"]
location = [50.1, 8.7]
[regions.us]
edges = ["{us}"]
public = ["{us}"]
location = [38.9, -77.5]
"""
PINNED = 'residency = { DE = ["us"] }'


@dataclass
class Regions:
    """Two regions of one edge each, behind one proxy."""

    stack: Stack
    routing: Path
    links: dict[str, str] = field(default_factory=dict)

    def write_routing(self, pinned: str = "") -> None:
        self.routing.write_text(ROUTING.format(pinned=pinned, **self.links))

    def route(self) -> list[str]:
        """The regions that a client at ADDRESS is told of."""
        request = urllib.request.Request(
            f"{self.stack['proxy'].url}/v1/route?pair=en-de",
            headers={"Authorization": f"Bearer {KEY}", "X-Forwarded-For": ADDRESS},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return [region["region"] for region in json.loads(answer.read())["regions"]]

    def direct(self, *regions: str) -> float:
        """Direct requests that the edges answered."""
        return sum(
            float(self.stack[region].admin("/stats")["counters"].get("direct{code=ok}", 0.0)) for region in regions
        )


@contextmanager
def two_regions(folder: Path) -> Iterator[Regions]:
    make_tiny_pair(folder / "models" / "en-de", eos_bias=9.0)
    database = write(folder / "geo.mmdb", {"20.0.0.0/8": {"country_code": COUNTRY}}, "country")
    regions = Regions(Stack(folder), folder / "routing.toml")
    try:
        for name in ("eu", "us"):
            config = {"models": [str(folder / "models")], "pairs": ["en-de"], "secret": SECRET, "region": name}
            regions.links[name] = regions.stack.add(name, "edge_worker", config).link_url
        regions.write_routing()
        proxy = {"routing": str(regions.routing), "geoip": str(database), "trusted_hops": ["127.0.0.0/8"]}
        regions.stack.add("proxy", "proxy", proxy | {"secret": SECRET, "keys": [KEY]})
        yield regions
    finally:
        regions.stack.close()


async def ask_until(client: AsyncClient, condition: Callable[[], bool]) -> None:
    """Go on asking as a program does: every request is answered, whatever happens to edges."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(condition):
            for _ in range(20):
                answer = await client.translate(TEXT, "en", "de", tier="edge")
                assert answer.translations[0].model == "en-de-tiny@1"


def test_a_client_goes_to_an_edge_and_its_death_is_not_noticed(tmp_path: Path) -> None:
    async def use(regions: Regions) -> None:
        async with AsyncClient(regions.stack["proxy"].url, key=KEY, direct=True) as client:
            await ask_until(client, lambda: regions.direct("eu", "us") > 0)
            first = "eu" if regions.direct("eu") else "us"
            other = {"eu": "us", "us": "eu"}[first]
            regions.stack[first].kill()
            await ask_until(client, lambda: regions.direct(other) > 0)

    with two_regions(tmp_path) as regions:
        asyncio.run(use(regions))
        assert "secret" not in "".join(regions.stack["proxy"].stderr)


def test_a_place_decides_what_a_client_is_told(tmp_path: Path) -> None:
    with two_regions(tmp_path) as regions:
        assert regions.route() == ["eu", "us"], "nearest first"
        regions.write_routing(PINNED)
        regions.stack["proxy"].process.send_signal(signal.SIGHUP)
        give_up = time.monotonic() + WITHIN_S
        while (told := regions.route()) != ["us"]:
            assert told == ["eu", "us"] and time.monotonic() < give_up
