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
from nearsay.lab.relay import Relay
from nearsay.runtime.tasks import Tasks
from tests.e2e.stack import Stack
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.proxy.test_location import write

pytestmark = pytest.mark.e2e

SECRET, KEY = "between proxies and edges", "of a client"
TEXT = "The cat sat on the mat."
WITHIN_S = 30.0
FAR_S = 0.03  # one way
# The client's address, as the load balancer in front would say, and its country; eu is near it.
ADDRESS, COUNTRY = "20.1.2.3", "DE"
ROUTING = """
default_region = "us"
{pinned}
[regions.eu]
edges = ["{eu}"]
public = ["{public_eu}"]
location = [50.1, 8.7]
[regions.us]
edges = ["{us}"]
public = ["{public_us}"]
location = [38.9, -77.5]
"""
PINNED = 'residency = { DE = ["us"] }'


@dataclass
class Regions:
    """Two regions of one edge each, behind one proxy."""

    stack: Stack
    links: dict[str, str] = field(default_factory=dict)
    public: dict[str, str] = field(default_factory=dict)  # where that isn't the same

    def write_routing(self, pinned: str = "") -> Path:
        path = self.stack.folder / "routing.toml"
        public = {f"public_{name}": url for name, url in (self.links | self.public).items()}
        path.write_text(ROUTING.format(pinned=pinned, **self.links, **public))
        return path

    def start_proxy(self) -> None:
        database = write(self.stack.folder / "geo.mmdb", {"20.0.0.0/8": {"country_code": COUNTRY}}, "country")
        config = {"routing": str(self.write_routing()), "geoip": str(database), "trusted_hops": ["127.0.0.0/8"]}
        self.stack.add("proxy", "proxy", config | {"secret": SECRET, "keys": [KEY]})

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
    regions = Regions(Stack(folder))
    try:
        for name in ("eu", "us"):
            config = {"models": [str(folder / "models")], "pairs": ["en-de"], "secret": SECRET, "region": name}
            regions.links[name] = regions.stack.add(name, "edge_worker", config).link_url
        yield regions
    finally:
        regions.stack.close()


async def ask_until(client: AsyncClient, condition: Callable[[], bool]) -> None:
    """Go on asking as a program does: every request is answered, whatever happens to edges."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(condition):
            await ask(client, 20)


async def ask(client: AsyncClient, count: int) -> None:
    for _ in range(count):
        answer = await client.translate(TEXT, "en", "de", tier="edge")
        assert answer.translations[0].model == "en-de-tiny@1"


def test_a_client_goes_to_the_nearest_edge_and_does_not_notice_its_death(tmp_path: Path) -> None:
    """The proxy thinks of us first, the client's place being unknown; eu is nearer, and the client measures that."""

    async def use(regions: Regions) -> None:
        tasks = Tasks()
        far = Relay(("127.0.0.1", regions.stack["us"].port), FAR_S, tasks)
        regions.public["us"] = f"ws://127.0.0.1:{await far.start()}/link"
        await asyncio.to_thread(regions.start_proxy)
        async with AsyncClient(regions.stack["proxy"].url, key=KEY, direct=True) as client:
            await ask_until(client, lambda: regions.direct("eu") > 0)
            assert regions.direct("us") == 0
            regions.stack["eu"].kill()
            await ask(client, 50)
        await far.close()
        await tasks.close()

    with two_regions(tmp_path) as regions:
        asyncio.run(use(regions))


def test_a_place_decides_what_a_client_is_told(tmp_path: Path) -> None:
    with two_regions(tmp_path) as regions:
        regions.start_proxy()
        assert regions.route() == ["eu", "us"], "nearest first"
        regions.write_routing(PINNED)
        regions.stack["proxy"].process.send_signal(signal.SIGHUP)
        give_up = time.monotonic() + WITHIN_S
        while (told := regions.route()) != ["us"]:
            assert told == ["eu", "us"] and time.monotonic() < give_up
