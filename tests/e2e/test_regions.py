"""Two emulated regions as real processes: one is killed under load and comes back, and no user sees an error."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from nearsay.cli.ports import free_ports
from nearsay.lab.relay import Relay
from nearsay.runtime.tasks import Tasks
from tests.e2e.stack import Service, Stack, start
from tests.kit.tiny_ct2 import make_tiny_pair

pytestmark = pytest.mark.e2e

ONE_WAY_S = {"eu": 0.001, "us": 0.015}
WITHIN_S = 30.0
USERS = 3
BODY = {"text": "The cat sat on the mat.", "source": "en", "target": "de", "tier": "edge"}


@dataclass
class Regions:
    """A proxy before a relay and an edge worker in each region, and users who ask all the time."""

    stack: Stack
    http: aiohttp.ClientSession
    ends: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def proxy(self) -> Service:
        return self.stack["proxy"]

    async def ask(self) -> tuple[int, str]:
        async with self.http.post("/v1/translate", json=BODY) as answer:
            body = await answer.json(content_type=None)
            return answer.status, body.get("region") or body["code"]

    async def use(self) -> None:
        while True:
            self.ends[await self.ask()] += 1

    async def stats(self) -> dict[str, float]:
        stats: dict[str, Any] = await asyncio.to_thread(self.proxy.admin, "/stats")
        return {**stats["counters"], **stats["gauges"]}

    async def until(self, condition: Callable[[dict[str, float]], bool]) -> None:
        """Wait for the proxy's figures; requests go on meanwhile, and to ask for the figures takes its time, too."""
        async with asyncio.timeout(WITHIN_S):
            while not condition(await self.stats()):
                pass

    async def explained(self) -> tuple[str, str]:
        """Region and reason, as the command line tells them."""
        admin = f"http://127.0.0.1:{self.proxy.ready['admin_port']}"
        arguments = ["route", "explain", "--admin", admin, "--text", BODY["text"], "--tier", "edge", "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        told = json.loads(result.stdout)
        return told["region"], told["why"]


@asynccontextmanager
async def regions(folder: Path) -> AsyncIterator[Regions]:
    make_tiny_pair(folder / "models" / "en-de")
    stack, tasks = Stack(folder), Tasks()
    try:
        ports = dict(zip(ONE_WAY_S, free_ports(len(ONE_WAY_S)), strict=True))
        config = {"models": [str(folder / "models")], "pairs": ["en-de"]}
        adds = (
            asyncio.to_thread(stack.add, name, "edge_worker", {**config, "port": ports[name]}) for name in ONE_WAY_S
        )
        await asyncio.gather(*adds)
        text = "[spill]\nrecovery_s = 0.5\n"
        for name, delay_s in ONE_WAY_S.items():
            port = await Relay(("127.0.0.1", ports[name]), delay_s, tasks).start()
            text += f'[regions.{name}]\nedges = ["ws://127.0.0.1:{port}/link"]\n'
        routing = folder / "routing.toml"
        routing.write_text(text)
        proxy = await asyncio.to_thread(stack.add, "proxy", "proxy", {"routing": str(routing)})
        async with aiohttp.ClientSession(proxy.url) as http:
            yield Regions(stack, http)
    finally:
        await tasks.close()
        await asyncio.to_thread(stack.close)


async def test_a_region_killed_under_load_and_back(tmp_path: Path) -> None:
    async with regions(tmp_path) as world:
        tasks = Tasks()
        for number in range(USERS):
            tasks.spawn(world.use(), name=f"user {number}")
        try:
            await world.until(lambda of: of.get("routed{region=eu,why=fastest}", 0) >= 20)
            assert (await world.explained(), (await world.ask())[1]) == (("eu", "fastest"), "eu")

            world.stack["eu"].kill()
            await world.until(lambda of: of.get("routed{region=us,why=spill_health}", 0) >= 20)
            assert (await world.explained(), (await world.ask())[1]) == (("us", "spill_health"), "us")

            module, config = world.stack.configs["eu"]
            world.stack.services["eu"] = await asyncio.to_thread(start, module, config)
            await world.until(lambda of: of.get("region_turns{region=eu,turn=returned}", 0) == 1)
            before = (await world.stats())["routed{region=eu,why=fastest}"]
            await world.until(lambda of: of["routed{region=eu,why=fastest}"] >= before + 20)
            assert (await world.explained(), (await world.ask())[1]) == (("eu", "fastest"), "eu")
        finally:
            await tasks.close()
        assert {status for status, _ in world.ends} == {200}, world.ends
        assert {region for _, region in world.ends} == {"eu", "us"}
        figures = await world.stats()
        assert {name: count for name, count in figures.items() if name.startswith("region_turns")} == {
            "region_turns{region=eu,turn=left}": 1.0,
            "region_turns{region=eu,turn=returned}": 1.0,
        }
        admin = f"http://127.0.0.1:{world.proxy.ready['admin_port']}"
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["stats", "--admin", admin])
        assert "spilled" in shown.stdout and "returned" in shown.stdout
