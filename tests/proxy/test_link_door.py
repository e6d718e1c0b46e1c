"""SDKs on GET /link: the same service, the same refusals."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from nearsay.runtime.link import LinkLimits, Peer
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError, Overloaded
from nearsay.wire.messages import Hello, Submit, Translate, Translated
from proxy.config import ProxyConfig
from tests.kit.fake_edge import FakeEdge, refuse, silence
from tests.kit.proxy_room import ProxyRoom, proxy_room

ASKED = Translate("sdk-1", ("good morning",), "en", "de")


@asynccontextmanager
async def sdk(room: ProxyRoom, *, secret: str = "", up: bool = True) -> AsyncIterator[Peer]:
    tasks = Tasks()
    peer = Peer(
        f"ws://127.0.0.1:{room.port}/link",
        hello=lambda: Hello("client", secret=secret),
        tasks=tasks,
        limits=LinkLimits(),
        clock=time.monotonic,
    )
    await peer.start()
    try:
        if up:
            await room.until(lambda: peer.ready, peer.on_change)
        yield peer
    finally:
        await peer.close()
        await tasks.close()


async def refusal(peer: Peer, message: Translate | Submit) -> NearsayError:
    stream = await peer.open(message)
    with pytest.raises(NearsayError) as refused:
        await stream.receive()
    return refused.value


async def test_an_answer_carries_all_stages() -> None:
    edge = FakeEdge()
    async with proxy_room(edge) as room, sdk(room) as peer:
        answer = await (await peer.open(ASKED)).receive()
        assert isinstance(answer, Translated)
        assert answer.translations[0].text == "GOOD MORNING"
        assert {"parse", "queue", "link", "edge_run", "render", "unaccounted"} <= answer.stages_ms.keys()
        assert answer.accounted_ms == pytest.approx(sum(answer.stages_ms.values()), abs=0.02)
        assert edge.requests[0].request_id == "sdk-1"
        assert [m.name for m in peer.hello.models] == ["en-de-edge@1"]  # type: ignore[union-attr]


async def test_updates_come_before_the_end() -> None:
    async with proxy_room(FakeEdge()) as room, sdk(room) as peer:
        stream = await peer.open(msgspec.structs.replace(ASKED, stream=True))
        kinds = [getattr(message, "kind", "end") async for message in stream]
        assert kinds == ["partial", "segment", "partial", "segment", "end"]


async def test_what_http_refuses_the_link_refuses() -> None:
    edge = FakeEdge()
    async with proxy_room(edge) as room, sdk(room) as peer:
        for change, code in (
            ({"texts": ("",)}, "empty_text"),
            ({"texts": ("a\0",)}, "invalid_text"),
            ({"texts": ("x" * 60_000,)}, "text_too_long"),
            ({"target": "xx"}, "unknown_language"),
            ({"tier": "origin"}, "tier_unavailable"),
            ({"budget_ms": -5.0}, "invalid_request"),
        ):
            assert (await refusal(peer, msgspec.structs.replace(ASKED, **change))).code == code
        assert (await refusal(peer, Submit("r", "m@1", "s", "t", b""))).code == "invalid_request"
        assert edge.requests == []


async def test_an_edges_error_comes_through_with_its_fields() -> None:
    async with proxy_room(FakeEdge(refuse(Overloaded("full", retry_after_ms=250.0)))) as room, sdk(room) as peer:
        error = await refusal(peer, ASKED)
        assert isinstance(error, Overloaded)
        assert (error.detail, error.retry_after_ms) == ("full", 250.0)


async def test_a_cancel_reaches_the_edge() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge) as room, sdk(room) as peer:
        stream = await peer.open(ASKED)
        await edge.wait_for(lambda: len(edge.requests) == 1)
        stream.cancel()
        await edge.wait_for(lambda: edge.cancelled == 1)


async def test_an_sdk_that_dies_cancels_what_it_asked_for() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge) as room:
        async with sdk(room) as peer:
            await peer.open(ASKED)
            await edge.wait_for(lambda: len(edge.requests) == 1)
        await edge.wait_for(lambda: edge.cancelled == 1)


async def test_with_keys_the_hello_must_show_one() -> None:
    config = ProxyConfig(keys=("alpha", "beta"))
    async with proxy_room(FakeEdge(), config=config) as room:
        async with sdk(room, secret="beta") as peer:
            assert isinstance(await (await peer.open(ASKED)).receive(), Translated)
        async with sdk(room, secret="gamma", up=False) as peer:
            await room.until(lambda: "unauthorised" in peer.reason, peer.on_change)
            assert not peer.ready


async def test_harmful_ids_are_replaced() -> None:
    edge = FakeEdge()
    async with proxy_room(edge) as room, sdk(room) as peer:
        harmful = msgspec.structs.replace(ASKED, request_id="a\nb", traceparent="x" * 1000)
        await (await peer.open(harmful)).receive()
        assert edge.requests[0].request_id not in ("", "a\nb")
        assert edge.requests[0].traceparent == ""
