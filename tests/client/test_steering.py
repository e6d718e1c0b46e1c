"""What the SDK makes of a route: addresses it may use, probes, and which one it goes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from nearsay.client import steering
from nearsay.client.steering import Address, Measured, Region, Route, ask_route, choose, nearest_of_each, probe, usable

GRANT = "grant1.x"


def measured(**rtts_ms: float) -> list[Measured]:
    return [Measured(region, f"wss://{region}/link", rtt_ms) for region, rtt_ms in rtts_ms.items()]


@asynccontextmanager
async def answering(answer: Callable[[web.Request], object]) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        found = answer(request)
        if isinstance(found, float):
            await asyncio.sleep(found)
            found = 204
        return found if isinstance(found, web.Response) else web.Response(status=int(str(found)))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_the_link_moves_only_for_what_can_be_felt() -> None:
    assert choose([], "wss://eu/link") is None
    assert choose(measured(us=90, eu=20), "") == "wss://eu/link"
    assert choose(measured(us=90, eu=20), "wss://us/link") == "wss://eu/link"
    assert choose(measured(us=22, eu=20), "wss://us/link") == "wss://us/link"
    assert choose(measured(us=6, eu=2), "wss://us/link") == "wss://us/link", "a ratio of three, and nobody feels it"
    assert choose(measured(eu=20), "wss://us/link") == "wss://eu/link", "the present one doesn't answer"


def test_a_report_has_one_round_trip_a_region() -> None:
    two = [Measured("eu", "wss://a/link", 9.0), Measured("eu", "wss://b/link", 7.0), *measured(us=90)]
    assert [(one.region, one.rtt_ms) for one in nearest_of_each(two)] == [("eu", 7.0), ("us", 90)]


@pytest.mark.parametrize(
    ("link", "probed", "plain", "tls"),
    [
        ("wss://e/link", "https://e/probe", True, True),
        ("ws://e/link", "http://e/probe", True, False),
        ("wss://e/link", "http://e/probe", True, False),
        ("file:///etc/passwd", "https://e/probe", False, False),
        ("wss://e/link", "ftp://e/probe", False, False),
        ("wss://[/link", "https://e/probe", False, False),
    ],
)
def test_which_addresses_are_used(link: str, probed: str, plain: bool, tls: bool) -> None:
    route = Route((Region("eu", (Address(link, probed),)),), GRANT, 60.0)
    assert bool(usable(route, "http://proxy").regions) == plain
    assert bool(usable(route, "https://proxy").regions) == tls


async def test_probes_are_few_and_who_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "PROBE_TIMEOUT_S", 0.2)
    asked: list[str] = []

    def answer(request: web.Request) -> object:
        asked.append(request.path)
        return {
            "/near": 204,
            "/far": 0.02,
            "/draining": 503,
            "/elsewhere": web.Response(status=302, headers={"Location": "/near"}),
        }.get(request.path, 5.0)

    async with answering(answer) as url, aiohttp.ClientSession() as http:
        names = ("far", "near", "draining", "elsewhere", "silent", "never")
        regions = tuple(Region(name, (Address(f"ws://{name}/link", f"{url}/{name}"),)) for name in names)
        found = await probe(http, Route(regions, GRANT, 60.0))
        assert [one.region for one in found] == ["near", "far"]
        assert sorted(asked) == ["/draining", "/elsewhere", "/far", "/far", "/near", "/near"]
        gone = Route((Region("gone", (Address("ws://gone/link", "http://127.0.0.1:1/probe"),)),), GRANT, 60.0)
        assert await probe(http, gone) == []
        silent = Route((regions[4],), GRANT, 60.0)
        assert await probe(http, silent) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"regions": 3}',
        b'{"regions": [{"region": "eu", "addresses": [{"link": 1}]}]}',
        b"x" * 70_000,
    ],
)
async def test_an_answer_that_is_none(body: bytes) -> None:
    async with answering(lambda _: web.Response(body=body)) as url, aiohttp.ClientSession() as http:
        assert await ask_route(http, url, "", "en-de", []) is None


async def test_what_is_asked_and_what_is_no_route() -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(request: web.Request) -> object:
        seen.append((request.path_qs, request.headers.get("Authorization")))
        return web.Response(body=b'{"grant": "", "grant_s": 60, "of": "the future"}')

    async with answering(answer) as url, aiohttp.ClientSession() as http:
        assert await ask_route(http, url, "k", "en-de", measured(eu=7.25, us=90)) == Route((), "", 60.0)
    assert seen == [("/v1/route?pair=en-de&probes=eu:7.250,us:90.000", "Bearer k")]
    async with answering(lambda _: 404) as url, aiohttp.ClientSession() as http:
        assert await ask_route(http, url, "", "en-de", []) is None
    async with aiohttp.ClientSession() as http:
        assert await ask_route(http, "http://127.0.0.1:1", "", "en-de", []) is None
