"""Regions over real links in memory: where requests go, what never leaves its region, what a reload does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nearsay.runtime.link import Stream
from nearsay.traffic.wait_queue import QueueRules
from nearsay.wire.errors import Overloaded
from nearsay.wire.messages import Translate
from proxy.config import ProxyConfig
from proxy.core.limits import AttemptLimits
from proxy.core.routing_check import read
from tests.kit.fake_edge import FakeEdge, echo, model, refuse, silence
from tests.kit.proxy_room import ProxyRoom, proxy_room

CHEAP_FIRST = """
version = "one"
[regions.eu]
edges = ["ws://edge-0/link"]
[regions.us]
edges = ["ws://edge-1/link"]
cost = 0.5
"""
BATCH = {"priority": "batch"}  # goes to `us`, whose distance a test can't choose


@asynccontextmanager
async def regional(tmp_path: Path, text: str, *edges: FakeEdge, **fields: Any) -> AsyncIterator[ProxyRoom]:
    path = tmp_path / "routing.toml"
    path.write_text(text)
    attempts = AttemptLimits(edge_wait_ms=50.0, queue=QueueRules(waiting_max=1))
    async with proxy_room(*edges, config=ProxyConfig(routing=path, attempts=attempts, **fields)) as room:
        await room.until(lambda: all(e.available for e in room.proxy.pool.endpoints))
        yield room


def counted(room: ProxyRoom, name: str) -> dict[str, float]:
    counters = room.proxy.metrics.snapshot()["counters"]
    return {key: value for key, value in counters.items() if key.startswith(name)}


async def test_an_answer_names_its_region_and_config(tmp_path: Path) -> None:
    async with regional(tmp_path, CHEAP_FIRST, FakeEdge(), FakeEdge()) as room:
        status, answer, _ = await room.post(BATCH)
        assert (status, answer["region"]) == (200, "us")
        assert answer["routing"] == read(CHEAP_FIRST).label and answer["routing"].startswith("one@")
        assert counted(room, "routed") == {"routed{region=us,why=cheapest}": 1.0}


async def test_a_stream_names_them_at_its_end(tmp_path: Path) -> None:
    async with regional(tmp_path, CHEAP_FIRST, FakeEdge(), FakeEdge()) as room:
        async with room.http.post(
            "/v1/translate", json={"text": "a b", "source": "en", "target": "de", "stream": True, **BATCH}
        ) as answer:
            events = (await answer.read()).decode().strip().split("\n\n")
        assert events[-1].startswith("event: done") and '"region":"us","routing":"one@' in events[-1]


async def test_without_a_file_there_is_one_region(tmp_path: Path) -> None:
    async with proxy_room(FakeEdge()) as room:
        _, answer, _ = await room.post({})
        assert answer["region"] == "default" and len(answer["routing"]) == 8


async def test_a_refused_attempt_goes_on_in_the_next_region(tmp_path: Path) -> None:
    async with regional(tmp_path, CHEAP_FIRST, FakeEdge(), FakeEdge(refuse(Overloaded()))) as room:
        status, answer, _ = await room.post(BATCH)
        assert (status, answer["region"]) == (200, "eu")
        assert counted(room, "routed") == {"routed{region=us,why=cheapest}": 1.0, "routed{region=eu,why=retry}": 1.0}


RESIDENT = CHEAP_FIRST + '[tenants.default]\nregions = ["us"]\n'


async def test_a_retry_does_not_leave_the_regions_that_are_allowed(tmp_path: Path) -> None:
    edges = [FakeEdge(), FakeEdge(refuse(Overloaded()))]
    async with regional(tmp_path, RESIDENT, *edges) as room:
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "overloaded")
        assert not edges[0].requests


async def test_an_allowed_region_that_is_away_is_a_503_and_no_leak(tmp_path: Path) -> None:
    edges = [FakeEdge(), FakeEdge()]
    async with regional(tmp_path, RESIDENT, *edges) as room:
        edges[1].publish("draining")
        await room.until(lambda: sum(e.available for e in room.proxy.pool.endpoints) == 1)
        for fields in ({}, {"stream": True}, {"priority": "batch"}, {"session": "s"}):
            status, problem, headers = await room.post(fields)
            assert (status, problem["code"]) == (503, "region_unavailable")
            assert headers["Retry-After"]
        assert not edges[0].requests
        edges[1].publish("ready")
        await room.until(lambda: all(e.available for e in room.proxy.pool.endpoints))
        assert (await room.post({}))[1]["region"] == "us"


async def test_an_allowed_region_without_the_pair_is_told_at_once(tmp_path: Path) -> None:
    edges = [FakeEdge(), FakeEdge(models=(model("en", "pt"),))]
    async with regional(tmp_path, RESIDENT, *edges) as room:
        room.proxy.service._gate._limits = AttemptLimits(edge_wait_ms=60_000.0)  # nothing is waited for
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "region_unavailable")
        assert not edges[0].requests


async def test_full_regions_are_waited_for_and_then_shed(tmp_path: Path) -> None:
    limit = "in_flight_max = 1\n"
    text = CHEAP_FIRST.replace("[regions.us]", limit + "[regions.us]") + limit
    edges = [FakeEdge(silence), FakeEdge(silence)]
    async with regional(tmp_path, text, *edges) as room:
        held = [room.tasks.spawn(room.post({}), name="held") for _ in range(2)]
        for edge in edges:
            await edge.wait_for(edge.asked)
        waiting = room.tasks.spawn(room.post({}), name="waiting")
        gate = room.proxy.service._gate
        while not len(gate):  # noqa: ASYNC110 - a turn of the loop is all it takes
            await asyncio.sleep(0)
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "overloaded")
        for edge in edges:
            edge.script = echo
        held[0].cancel()
        assert (await waiting)[0] == 200
        held[1].cancel()


async def test_a_reload_links_new_edges_and_lets_dropped_ones_end_their_work(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def held(stream: Stream, message: Translate) -> None:
        await release.wait()
        await echo(stream, message)

    old, new = FakeEdge(held), FakeEdge()
    first = '[regions.us]\nedges = ["ws://edge-0/link"]\n'
    async with regional(tmp_path, first, old, new) as room:
        pool, [peer] = room.proxy.pool, room.proxy.pool.peers
        begun = room.tasks.spawn(room.post({}), name="begun")
        await old.wait_for(old.asked)
        routing = read('version = "two"\n' + first.replace("edge-0", "edge-1"))
        await pool.apply(routing)
        assert [e.name for e in pool.endpoints] == ["ws://edge-1/link"]
        await room.until(lambda: pool.endpoints[0].available)
        status, answer, _ = await room.post({})
        assert (status, answer["routing"]) == (200, routing.label)
        assert peer.ready, "its request hasn't ended"
        release.set()
        assert (await begun)[0] == 200
        await room.until(lambda: not peer.ready, peer.on_change)
        assert len(old.requests) == len(new.requests) == 1


async def test_a_dropped_edge_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    stuck = FakeEdge(silence)
    first = '[regions.us]\nedges = ["ws://edge-0/link"]\n'
    async with regional(tmp_path, first, stuck, FakeEdge(), drain_timeout_s=0.01) as room:
        pool = room.proxy.pool
        begun = room.tasks.spawn(room.post({"deadline_ms": 5000.0}), name="begun")
        await stuck.wait_for(stuck.asked)
        await pool.apply(read(first.replace("edge-0", "edge-1")))
        status, _, _ = await begun
        assert status == 200, "its link was lost, so it was tried again: at the new edge"
        assert counted(room, "drain_timeouts") == {"drain_timeouts": 1.0}


async def test_an_edge_that_changes_its_region_begins_anew(tmp_path: Path) -> None:
    edges = [FakeEdge(), FakeEdge()]
    async with regional(tmp_path, CHEAP_FIRST, *edges) as room:
        pool = room.proxy.pool
        swapped = CHEAP_FIRST.replace("edge-0", "x").replace("edge-1", "edge-0").replace("x", "edge-1", 1)
        before, links = pool.endpoints, pool.peers
        await pool.apply(read(swapped))
        assert {e.name: e.region for e in pool.endpoints} == {"ws://edge-0/link": "us", "ws://edge-1/link": "eu"}
        assert all(e.available for e in pool.endpoints), "the links stay"
        assert set(pool.peers) == set(links)
        assert not set(before) & set(pool.endpoints)
        assert (await room.post(BATCH))[1]["region"] == "us"
        assert len(edges[0].requests) == 1
