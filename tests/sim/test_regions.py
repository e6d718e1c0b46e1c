"""A whole proxy before three regions, on virtual time and a network with distances: killed under load, and back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import Stream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Translate, Translated, Update
from proxy.app import Proxy, build
from proxy.config import ProxyConfig
from proxy.core.fleet import Features
from proxy.core.fleet_view import restored, view
from proxy.core.routing import forward
from proxy.core.stages import Timeline
from proxy.request import ValidRequest
from proxy.service import Call
from tests.kit.fake_edge import FakeEdge, translation
from tests.sim.net import Net

ONE_WAY_S = {"eu": 0.004, "us": 0.045, "ap": 0.09}
EDGES = 2
RUN_S = 0.008
RECOVERY_S = 2.0
RATE = 30.0
ROUTING = "version = 'sim'\n[spill]\nrecovery_s = 2.0\n" + "".join(
    f"[regions.{name}]\nedges = [{', '.join(repr(f'ws://{name}-{n}/link') for n in range(EDGES))}]\n"
    for name in ONE_WAY_S
)


class Worker:
    """An edge with one engine: requests wait for each other, and the answer says for how long."""

    def __init__(self, now: Any) -> None:
        self.engine = asyncio.Lock()
        self.edge = FakeEdge(self.serve, clock=now)
        self.now = now

    async def serve(self, stream: Stream, message: Translate) -> None:
        came = self.now()
        async with self.engine:
            began = self.now()
            if message.stream:
                await stream.send(Update(0, 0, 0, "partial", "x"))
            await asyncio.sleep(RUN_S)
        stages_ms = {"edge_queue": (began - came) * 1e3, "edge_run": RUN_S * 1e3}
        texts = tuple(translation(text) for text in message.texts)
        await stream.finish(Translated(texts, stages_ms, (self.now() - came) * 1e3))


class Regions:
    """`proxy` before EDGES workers in each region."""

    def __init__(self, proxy: Proxy, net: Net, tasks: Tasks, rng: random.Random) -> None:
        self.proxy, self.net, self.tasks, self.rng = proxy, net, tasks, rng

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def request(self, text: str = "the cat sat on the mat", **fields: Any) -> str:
        """Where it was answered, or the code of its error."""
        who = {name: fields.pop(name) for name in ("tenant", "country") if name in fields}
        asked: dict[str, Any] = {"tier": "auto", "priority": "interactive", "session": "", "stream": False, **fields}
        request = ValidRequest((text,), "en", "de", deadline_ms=10_000.0, segments=False, chars=len(text), **asked)
        call = Call("request", Timeline(arrived=self.now()), **who)

        async def emit(_: Update) -> None:
            """A client that takes what comes."""

        try:
            await self.proxy.service.translate(request, call, emit if asked["stream"] else None)
        except NearsayError as error:
            return error.code
        return call.region

    async def load(self, rate_per_s: float, seconds: float) -> Counter[str]:
        """Requests at random instants; how they ended."""
        ends: Counter[str] = Counter()

        async def one() -> None:
            ends[await self.request()] += 1

        until = self.now() + seconds
        async with asyncio.TaskGroup() as group:
            while self.now() < until:
                group.create_task(one())
                await asyncio.sleep(self.rng.expovariate(rate_per_s))
        return ends

    def down(self, region: str) -> None:
        for number in range(EDGES):
            self.net.down(f"ws://{region}-{number}/link")

    def up(self, region: str) -> None:
        for number in range(EDGES):
            self.net.up(f"ws://{region}-{number}/link")

    def counted(self, name: str) -> Mapping[str, float]:
        counters = self.proxy.metrics.snapshot()["counters"]
        return {key.removeprefix(name): value for key, value in counters.items() if key.startswith(name)}


@asynccontextmanager
async def regions(folder: Path, seed: int, routing: str = ROUTING) -> AsyncIterator[Regions]:
    path = folder / "routing.toml"
    path.write_text(routing)
    rng, tasks = random.Random(seed), Tasks()
    net = Net(tasks)
    now = asyncio.get_running_loop().time
    for region, one_way_s in ONE_WAY_S.items():
        for number in range(EDGES):
            url = f"ws://{region}-{number}/link"
            net.delay_s[url] = one_way_s
            net.serve(url, Worker(now).edge.server.serve)
    proxy = build(ProxyConfig(routing=path), clock=now, connect=net.connect, rng=random.Random(seed))
    await proxy.start()
    proxy.lifecycle.move("ready")
    await asyncio.sleep(1.0)
    try:
        yield Regions(proxy, net, tasks, rng)
        assert proxy.service.in_flight == 0
        assert all(endpoint.in_flight == 0 for endpoint in proxy.pool.endpoints)
    finally:
        await proxy.stop()
        await tasks.close()


def test_a_region_killed_under_load_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with regions(tmp_path, 3) as world:
            assert set(await world.load(RATE, 5.0)) == {"eu"}
            asyncio.get_running_loop().call_later(2.0, world.down, "eu")
            assert set(await world.load(RATE, 8.0)) == {"eu", "us"}, "no user sees an error"
            assert set(await world.load(RATE, 2.0)) == {"us"}, "the spill"
            world.up("eu")
            back = await world.load(RATE, 8.0)
            assert set(back) == {"us", "eu"} and back["us"] < RATE * (RECOVERY_S + 2.0)
            assert set(await world.load(RATE, 5.0)) == {"eu"}, "the return"
            assert world.counted("region_turns") == {"{region=eu,turn=left}": 1.0, "{region=eu,turn=returned}": 1.0}
            assert {"{region=us,why=spill_health}", "{region=eu,why=probe}"} <= set(world.counted("routed"))

    run(main())


def test_a_region_that_comes_and_goes_is_not_used(tmp_path: Path) -> None:
    async def main() -> None:
        async with regions(tmp_path, 1) as world:
            assert set(await world.load(RATE, 1.0)) == {"eu"}
            for _ in range(5):
                world.down("eu")
                await world.load(RATE, 1.0)
                world.up("eu")
                assert set(await world.load(RATE, RECOVERY_S - 0.5)) == {"us"}
            assert world.counted("region_turns") == {"{region=eu,turn=left}": 1.0}

    run(main())


def test_more_than_a_region_can_do_overflows_and_nobody_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with regions(tmp_path, 2) as world:
            ends = await world.load(350.0, 4.0)  # one region does 250 a second
            assert set(ends) == {"eu", "us"} and ends["eu"] > ends["us"] > 0.1 * ends["eu"]
            assert set(await world.load(RATE, 4.0)) == {"eu"}
            assert world.counted("region_turns") == {}

    run(main())


RULES = ROUTING + "[residency]\nDE = ['eu']\nUS = ['us', 'ap']\n[tenants.acme]\nregions = ['ap', 'eu']\n"


def test_pinned_texts_never_leave_whatever_breaks(tmp_path: Path, seed: int) -> None:
    """Regions come and go while requests of all kinds are tried, retried and streamed."""
    allowed = {"DE": {"eu"}, "US": {"us", "ap"}, "": {"eu"}, "FR": {"eu", "us", "ap"}}

    async def main() -> None:
        async with regions(tmp_path, seed, RULES) as world:
            rng, seen = world.rng, Counter[str]()

            async def one() -> None:
                await asyncio.sleep(rng.uniform(0.0, 10.0))
                country, tenant = rng.choice(list(allowed)), rng.choice(["default", "acme"])
                end = await world.request(
                    country=country,
                    tenant=tenant,
                    stream=rng.random() < 0.3,
                    session=rng.choice(["", "s"]),
                    priority=rng.choice(["interactive", "batch"]),
                )
                may = allowed[country] & ({"ap", "eu"} if tenant == "acme" else set(ONE_WAY_S))
                assert end in may | {"region_unavailable", "edge_unavailable", "link_lost"}, (country, tenant, end)
                seen[end] += 1

            async def trouble() -> None:
                for _ in range(6):
                    region = rng.choice(list(ONE_WAY_S))
                    world.down(region)
                    await asyncio.sleep(rng.uniform(0.1, 2.0))
                    world.up(region)

            async with asyncio.TaskGroup() as group:
                group.create_task(trouble())
                for _ in range(60):
                    group.create_task(one())
            assert seen["eu"] and seen["us"] + seen["ap"]

    run(main())


@pytest.mark.parametrize("number", range(3))
def test_what_explain_says_is_what_a_live_request_does(tmp_path: Path, number: int) -> None:
    """Asked of the proxy's view as the admin port shows it, just before the request."""

    async def main() -> None:
        async with regions(tmp_path, number, RULES) as world:
            rng, pool, seen = world.rng, world.proxy.pool, set[tuple[str, str]]()
            asked: list[asyncio.Task[str]] = []
            for step in range(200):
                await asyncio.sleep(rng.expovariate(50.0))
                if step % 40 == 20:
                    (world.up if step % 80 == 60 else world.down)("eu")
                    await asyncio.sleep(0.05)
                fields = {
                    "country": rng.choice(["", "DE", "US", "FR"]),
                    "priority": rng.choice(["interactive", "batch"]),
                    "session": rng.choice(["", "s"]),
                }
                features = Features(pair="en-de", chars=22, deadline_ms=10_000.0, **fields)
                told = forward(features, restored(view(pool.fleet, world.now()), 0.0), 0.0)
                if not told.region:
                    continue
                before = {region.name: region.in_flight for region in pool.fleet.regions.values()}
                asked.append(world.tasks.spawn(world.request(**fields), name="request"))
                await asyncio.sleep(0)  # it is sent
                [went] = [r.name for r in pool.fleet.regions.values() if r.in_flight > before[r.name]]
                assert went == told.region
                seen.add((told.region, told.why))
            await asyncio.gather(*asked)
            assert len(seen) > 3, seen

    run(main())
