"""The direct link beside the proxy's: when it is used, how it is renewed and moved, and that no failure of it shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from nearsay import Client
from nearsay.client import AsyncClient, Done
from nearsay.client import direct as direct_module
from nearsay.wire.errors import InvalidRequest, LinkLost
from nearsay.wire.messages import Hello, ModelInfo, Translate, Translated, Update
from tests.client.fake_proxy import FakeProxy, in_thread

MODEL = ModelInfo("en-de-student", "1", "en", "de", "edge", "0" * 16, "1" * 16)
EDGE = Hello(role="edge", models=(MODEL,))


class Edge(FakeProxy):
    """An edge that can be probed; `delay_s` is how far away it is."""

    def __init__(self, region: str, delay_s: float = 0.0) -> None:
        super().__init__(http=False, hello=EDGE)
        self.region = region
        self.delay_s = delay_s
        self.probes = 0
        self._app.router.add_get("/probe", self._probe)

    async def _probe(self, _: web.Request) -> web.Response:
        self.probes += 1
        await asyncio.sleep(self.delay_s)
        return web.Response(status=204)

    @property
    def link(self) -> str:
        return self.url.replace("http", "ws") + "/link"


class Proxy(FakeProxy):
    """A proxy that steers to `edges`, in this order. `asked` are the queries that came."""

    def __init__(self) -> None:
        super().__init__()
        self.edges: list[Edge] = []
        self.asked: list[dict[str, str]] = []
        self.grants = True
        self.grant_s = 60.0
        self.changed = asyncio.Event()
        self._app.router.add_get("/v1/route", self._route)

    async def _route(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        self.changed.set()
        regions = [
            {"region": edge.region, "addresses": [{"link": edge.link, "probe": edge.url + "/probe"}]}
            for edge in self.edges
        ]
        grant = f"grant1.{len(self.asked)}" if self.grants else ""
        return web.json_response({"regions": regions, "grant": grant, "grant_s": self.grant_s})


@asynccontextmanager
async def world(*edges: Edge, grants: bool = True) -> AsyncIterator[tuple[Proxy, AsyncClient]]:
    """A proxy, its edges, and a client that asks directly where it can."""
    async with AsyncExitStack() as stack:
        proxy = Proxy()
        proxy.grants = grants
        for edge in edges:
            proxy.edges.append(await stack.enter_async_context(edge.serving()))  # type: ignore[arg-type]
        await stack.enter_async_context(proxy.serving())
        client = await stack.enter_async_context(AsyncClient(proxy.url, direct=True))
        yield proxy, client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of seconds as hundredths: the order of things is what is tested."""
    for name, value in (("RENEW_MIN_S", 0.02), ("RETRY_FIRST_S", 0.05), ("PAUSE_S", 0.05), ("RENEW_BEFORE_S", 20.0)):
        monkeypatch.setattr(direct_module, name, value)


async def ask_until(client: AsyncClient, condition: Callable[[], bool]) -> None:
    """Go on asking as a program does; every request must be answered."""
    async with asyncio.timeout(10):
        while not condition():
            assert (await client.translate("hello", "en", "de")).text == "HELLO [de]"
            await asyncio.sleep(0.005)


async def test_the_first_request_waits_for_nothing_and_later_ones_go_direct() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        assert (await client.translate("hello", "en", "de")).text == "HELLO [de]"
        assert len(proxy.requests) == 1 and not edge.requests
        await ask_until(client, lambda: bool(edge.requests))
        before = len(proxy.requests)
        events = [event async for event in client.stream(["a", "b"], "en", "de", tier="edge")]
        assert isinstance(events[-1], Done) and events[-1].result.translations[1].text == "B [de]"
        assert len(proxy.requests) == before
        assert edge.requests[-1].grant == "grant1.1"
        assert proxy.asked[0] == {"pair": "en-de"}


async def test_it_goes_to_the_nearest_by_its_own_measure() -> None:
    far, near = Edge("told first", 0.03), Edge("nearer")
    async with world(far, near) as (_, client):
        await ask_until(client, lambda: bool(near.requests))
        assert not far.requests and far.probes == near.probes == 2


async def test_what_the_edge_does_not_have_goes_to_the_proxy() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        await ask_until(client, lambda: bool(edge.requests))
        direct, before = len(edge.requests), len(proxy.requests)
        for source, target, tier in (("en", "pt", "auto"), ("en", "de", "origin"), ("auto", "de", "auto")):
            await client.translate("hello", source, target, tier=tier)  # type: ignore[arg-type]
        assert (len(edge.requests), len(proxy.requests)) == (direct, before + 3)


async def test_without_a_grant_there_is_no_direct_link() -> None:
    edge = Edge("eu")
    async with world(edge, grants=False) as (proxy, client):
        await ask_until(client, lambda: len(proxy.asked) >= 3)
        assert not edge.requests and not edge.probes


async def test_a_proxy_that_knows_no_route_is_a_proxy_all_the_same() -> None:
    async with FakeProxy().serving() as proxy, AsyncClient(proxy.url, direct=True) as client:
        for _ in range(3):
            assert (await client.translate("hello", "en", "de")).text == "HELLO [de]"


async def test_grants_are_renewed_and_measurements_told() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        proxy.grant_s = 20.05  # renewal is due 0.05 s after each
        await ask_until(client, lambda: any(request.grant == "grant1.3" for request in edge.requests))
        assert proxy.asked[1]["probes"].startswith("eu:")
        assert "probes" not in proxy.asked[2], "told once"
        assert edge.probes == 2, "a grant is renewed without probing again"


@pytest.mark.parametrize(
    "text", ["reject overloaded", "reject grant_expired", "reject rate_limited", "reject draining"]
)
async def test_a_refusal_is_answered_by_the_proxy(text: str) -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        await ask_until(client, lambda: bool(edge.requests))
        proxy.answers = FakeProxy().answers  # type: ignore[method-assign]
        with pytest.raises(Exception) as told:
            await client.translate(text, "en", "de")
        assert edge.requests[-1].texts == (text,), "asked first"
        assert getattr(told.value, "code", "") == text.removeprefix("reject "), "and this is the proxy's own word"


async def test_an_error_of_the_request_itself_is_the_proxys_to_tell_and_does_not_end_the_link() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        await ask_until(client, lambda: bool(edge.requests))
        before = len(proxy.requests)
        with pytest.raises(InvalidRequest):
            await client.translate("reject unsupported_pair", "en", "de")
        assert len(proxy.requests) == before + 1
        direct = len(edge.requests)
        await client.translate("hello", "en", "de")
        assert len(edge.requests) == direct + 1


async def test_a_silent_edge_costs_half_the_deadline_and_no_answer() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        await ask_until(client, lambda: bool(edge.requests))
        answers = proxy.answers

        def quick(request: Translate) -> AsyncIterator[Update | Translated]:
            return answers(msgspec.structs.replace(request, texts=("not hanging",)))

        proxy.answers = quick  # type: ignore[method-assign]
        result = await client.translate("hang", "en", "de", deadline_ms=400)
        assert result.text == "NOT HANGING [de]"
        assert edge.cancelled == 1


async def test_a_broken_link_is_not_noticed_and_another_edge_is_found() -> None:
    near, far = Edge("near"), Edge("far", 0.02)
    async with world(near, far) as (_, client):
        await ask_until(client, lambda: bool(near.requests))
        near.delay_s = 30.0  # and the probe doesn't answer any more
        near.break_links()
        await ask_until(client, lambda: bool(far.requests))


async def test_a_stream_that_has_begun_is_not_begun_again() -> None:
    edge = Edge("eu")
    async with world(edge) as (proxy, client):
        await ask_until(client, lambda: bool(edge.requests))
        before, events = len(proxy.requests), []
        with pytest.raises(LinkLost):
            async for event in client.stream("drop after one", "en", "de"):
                events.append(event)
        assert len(events) == 1 and len(proxy.requests) == before


async def test_a_region_that_is_told_no_more_is_left() -> None:
    one, two = Edge("one"), Edge("two")
    async with world(one) as (proxy, client):
        proxy.grant_s = 20.02
        async with two.serving():
            await ask_until(client, lambda: bool(one.requests))
            proxy.edges = [two]
            await ask_until(client, lambda: bool(two.requests))
            before = len(one.requests)
            await ask_until(client, lambda: len(two.requests) > 5)
            assert len(one.requests) == before


async def test_closing_leaves_nothing_behind() -> None:
    edge = Edge("eu")
    async with world(edge) as (_, client):
        await ask_until(client, lambda: bool(edge.requests))
        await client.aclose()
        async with asyncio.timeout(5):
            while edge._server.links:  # noqa: ASYNC110 - the loop turns until the other side has seen it
                await asyncio.sleep(0)


def test_the_blocking_client_can_too() -> None:
    with in_thread(Proxy()) as fake, Client(fake.url, direct=True) as client:
        assert isinstance(fake, Proxy)
        deadline = time.monotonic() + 10
        while not fake.asked and time.monotonic() < deadline:
            assert client.translate("hello", "en", "de").text == "HELLO [de]"
        assert fake.asked
