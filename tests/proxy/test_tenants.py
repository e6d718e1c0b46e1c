"""Keys and limits at the doors of a whole proxy: who is let in as whom, what is demoted, what is refused and how."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from nearsay.runtime.link import Stream
from nearsay.wire.errors import InvalidRequest, RateLimited
from nearsay.wire.messages import Translate, Translated
from proxy.app import build
from proxy.config import ProxyConfig
from proxy.core.keys import key_hash
from proxy.core.routing_config import Tenant
from tests.kit.fake_edge import FakeEdge, echo
from tests.kit.proxy_room import ProxyRoom, proxy_room
from tests.proxy.test_link_door import ASKED, refusal, sdk

LONG = {"text": "word " * 200}


def acme(**limits: Any) -> dict[str, Tenant]:
    return {"acme": Tenant(keys=(key_hash("a1"), key_hash("a2")), **limits)}


def bearer(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}", "Accept-Encoding": "identity"}}


def quota_counts(room: ProxyRoom) -> dict[str, float]:
    counters: Mapping[str, float] = room.proxy.metrics.snapshot()["counters"]
    return {name.removeprefix("quota"): n for name, n in counters.items() if name.startswith("quota")}


class Turnstile:
    """An edge whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, stream: Stream, message: Translate) -> None:
        await self.open.wait()
        await echo(stream, message)


async def test_the_key_says_whose_request_it_is_and_the_edge_is_told() -> None:
    edge = FakeEdge()
    config = ProxyConfig(keys=("plain",))
    async with proxy_room(edge, config=config, tenants=acme()) as room:
        for key in ("a1", "a2", "plain"):
            assert (await room.post({}, **bearer(key)))[0] == 200
        assert [request.tenant for request in edge.requests] == ["acme", "acme", "default"]
        for stranger in ("a3", "", key_hash("a1")):
            status, problem, headers = await room.post({}, **bearer(stranger))
            assert (status, problem["code"], headers["WWW-Authenticate"]) == (401, "unauthorised", "Bearer")
        assert len(edge.requests) == 3


async def test_on_a_link_the_key_says_it_too_whatever_the_message_says() -> None:
    edge = FakeEdge()
    async with proxy_room(edge, tenants=acme()) as room, sdk(room, secret="a2") as peer:
        await (await peer.open(msgspec.structs.replace(ASKED, tenant="globex"))).receive()
        assert [request.tenant for request in edge.requests] == ["acme"]


async def test_a_key_is_rotated_under_open_connections_and_links() -> None:
    edge = FakeEdge()
    async with proxy_room(edge, tenants=acme()) as room, sdk(room, secret="a1") as old, sdk(room, secret="a2") as new:
        await (await old.open(ASKED)).receive()
        room.proxy.tenants.replace({"acme": Tenant(keys=(key_hash("a2"), key_hash("a3")))})
        refused = await refusal(old, ASKED)
        assert isinstance(refused, InvalidRequest) and refused.code == "unauthorised"
        assert isinstance(await (await new.open(ASKED)).receive(), Translated)
        statuses = [(await room.post({}, **bearer(key)))[0] for key in ("a1", "a2", "a3")]
        assert statuses == [401, 200, 200]


async def test_taking_the_last_key_away_opens_no_door_but_on_loopback() -> None:
    strict = build(ProxyConfig(host="0.0.0.0", secret="s", edges=("ws://nowhere/link",)), tenants=acme()).tenants
    assert strict.of_header("Bearer a1") == "acme"
    strict.replace({})
    with pytest.raises(InvalidRequest):
        strict.of_header("")
    assert strict.key_id("") is None and strict.key_id("s") is not None
    loopback = build(ProxyConfig(edges=("ws://nowhere/link",)), tenants=acme()).tenants
    with pytest.raises(InvalidRequest):
        loopback.of_header("")
    loopback.replace({})
    assert loopback.of_header("") == "default"


async def test_over_the_limit_short_work_gets_429_with_all_that_a_client_needs() -> None:
    edge = FakeEdge()
    async with proxy_room(edge, tenants=acme(requests_per_s=0.1, burst_s=20.0)) as room:
        first, second, third = [await room.post({}, **bearer("a1")) for _ in range(3)]
        assert [first[0], second[0], third[0]] == [200, 200, 429]
        assert first[2]["RateLimit-Policy"] == third[2]["RateLimit-Policy"] == '"requests";q=2;w=20'
        states = [re.sub(r"t=(\d+)", "t=", answer[2]["RateLimit"]) for answer in (first, second, third)]
        assert states == ['"requests";r=1;t=', '"requests";r=0;t=', '"requests";r=0;t=']
        _, problem, headers = third
        assert headers["Content-Type"] == "application/problem+json"
        assert (problem["status"], problem["code"]) == (429, "rate_limited")
        assert problem["violated-policies"] == ["requests"]
        assert 1 <= int(headers["Retry-After"]) <= 10
        assert 0 < problem["retry_after_ms"] <= 10_000
        assert len(edge.requests) == 2
        assert quota_counts(room) == {"{tenant=acme,outcome=refused,policy=requests}": 1}


async def test_a_link_is_refused_with_the_time_to_come_again() -> None:
    limited = acme(requests_per_s=0.1, burst_s=10.0)
    async with proxy_room(FakeEdge(), tenants=limited) as room, sdk(room, secret="a1") as peer:
        await (await peer.open(ASKED)).receive()
        error = await refusal(peer, ASKED)
    assert isinstance(error, RateLimited) and not error.retryable
    assert error.retry_after_ms is not None and 0 < error.retry_after_ms <= 10_000


async def test_bulk_work_is_demoted_and_says_so_at_every_door() -> None:
    edge = FakeEdge()
    async with proxy_room(edge, tenants=acme(chars_per_s=20.0, burst_s=50.0, batch_ratio=10.0)) as room:
        status, answer, headers = await room.post(LONG, **bearer("a1"))
        assert (status, "priority" in answer) == (200, False)
        status, answer, headers = await room.post(LONG, **bearer("a1"))
        assert (status, answer["priority"]) == (200, "batch")
        assert headers["RateLimit-Policy"] == '"batch-chars";q=10000;w=50;qu="characters"'
        async with room.http.post(
            "/v1/translate", json={**LONG, "source": "en", "target": "de", "stream": True}, **bearer("a1")
        ) as stream:
            assert stream.headers["RateLimit"].startswith('"batch-chars";r=8')
            assert b'"priority":"batch"' in (await stream.read()).rpartition(b"event: done")[2]
        async with sdk(room, secret="a1") as peer:
            asked = msgspec.structs.replace(ASKED, texts=(LONG["text"],))
            final = await (await peer.open(asked)).receive()
            assert isinstance(final, Translated) and final.priority == "batch"
        assert [request.priority for request in edge.requests] == ["interactive", "batch", "batch", "batch"]
        assert quota_counts(room) == {"{tenant=acme,outcome=demoted,policy=}": 3}


async def test_what_asks_for_batch_is_no_demotion() -> None:
    async with proxy_room(FakeEdge(), tenants=acme(chars_per_s=100.0)) as room:
        _, answer, headers = await room.post({"priority": "batch"}, **bearer("a1"))
        assert "priority" not in answer and "batch-chars" in headers["RateLimit"]
        assert quota_counts(room) == {}


async def test_a_tenants_class_can_be_capped() -> None:
    edge = FakeEdge()
    async with proxy_room(edge, tenants=acme(priority_max="batch")) as room:
        _, answer, headers = await room.post({}, **bearer("a1"))
        assert answer["priority"] == edge.requests[0].priority == "batch"
        assert "RateLimit" not in headers
        assert quota_counts(room) == {"{tenant=acme,outcome=capped,policy=}": 1}


async def test_concurrency_is_given_back_by_an_end_of_any_kind() -> None:
    script = Turnstile()
    edge = FakeEdge(script)
    async with proxy_room(edge, tenants=acme(concurrency_max=2)) as room:
        waiting = [room.tasks.spawn(room.post({}, **bearer("a1")), name="request") for _ in range(2)]
        await edge.wait_for(lambda: len(edge.requests) == 2)
        status, problem, _ = await room.post({}, **bearer("a1"))
        assert (status, problem["violated-policies"]) == (429, ["concurrency"])
        waiting[0].cancel()
        await edge.wait_for(lambda: edge.cancelled == 1)
        waiting.append(room.tasks.spawn(room.post({}, **bearer("a1")), name="request"))
        await edge.wait_for(lambda: len(edge.requests) == 3)
        script.open.set()
        assert [(await task)[0] for task in waiting[1:]] == [200, 200]
        edge.script = echo
        statuses = [(await room.post({}, **bearer("a1")))[0] for _ in range(5)]
        assert statuses == [200] * 5


async def test_one_tenants_flood_is_no_other_tenants() -> None:
    tenants = acme(requests_per_s=0.1, burst_s=10.0) | {"globex": Tenant(keys=(key_hash("g"),), requests_per_s=100.0)}
    async with proxy_room(FakeEdge(), tenants=tenants) as room:
        flood = [(await room.post({}, **bearer("a1")))[0] for _ in range(20)]
        assert flood == [200] + [429] * 19
        assert [(await room.post({}, **bearer("g")))[0] for _ in range(20)] == [200] * 20


async def test_a_proxy_that_is_full_charges_nobody() -> None:
    script = Turnstile()
    edge = FakeEdge(script)
    config = ProxyConfig(in_flight_max=1)
    async with proxy_room(edge, config=config, tenants=acme(requests_per_s=0.1, burst_s=20.0)) as room:
        first = room.tasks.spawn(room.post({}, **bearer("a1")), name="request")
        await edge.wait_for(lambda: len(edge.requests) == 1)
        for _ in range(5):
            status, problem, headers = await room.post({}, **bearer("a1"))
            assert (status, problem["code"]) == (503, "overloaded")
            assert "RateLimit" not in headers
        script.open.set()
        assert (await first)[0] == 200
        assert (await room.post({}, **bearer("a1")))[0] == 200
