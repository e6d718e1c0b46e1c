"""A door behind the PROXY protocol: who is asked for a header, what becomes of it, and what can't be done with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.preface import Prefaced, PrefacedRunner
from nearsay.runtime.service import check_doors, loop_factory
from nearsay.wire.hops import TrustedHops
from nearsay.wire.proxy_protocol import V2_START
from tests.runtime.test_service import Demo, get, running

GET = b"GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
V1 = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"
V2 = V2_START + b"\x21\x11\x00\x0c" + bytes((203, 0, 113, 7, 10, 0, 0, 1)) + (4711).to_bytes(2, "big") + b"\x01\xbb"


async def who(request: web.Request) -> web.Response:
    return web.json_response({"remote": request.remote, "peer": request.get_extra_info("peername")})


@asynccontextmanager
async def door(*hops: str, **bounds: float) -> AsyncIterator[tuple[int, Prefaced]]:
    app = web.Application()
    app.router.add_get("/who", who)
    runner = PrefacedRunner(app, TrustedHops(hops), access_log=None)
    await runner.setup()
    for name, value in bounds.items():
        setattr(runner.server, name, value)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], runner.server
    finally:
        await runner.cleanup()


async def exchange(port: int, *pieces: bytes) -> bytes:
    """All that comes back; empty when the connection is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def body(answer: bytes) -> dict[str, object]:
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("header", [V1, V2])
async def test_the_header_names_the_client(header: bytes) -> None:
    async with door("127.0.0.0/8") as (port, _):
        told = body(await exchange(port, header + GET))
        assert told == {"remote": "203.0.113.7", "peer": ["203.0.113.7", 4711]}
        assert body(await exchange(port, *(bytes([b]) for b in header), GET)) == told


@pytest.mark.parametrize("make", [asyncio.new_event_loop, loop_factory()])
def test_on_both_event_loops(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def ask() -> bytes:
        async with door("127.0.0.0/8") as (port, _):
            return await exchange(port, V1, GET)

    with asyncio.Runner(loop_factory=make) as runner:
        assert body(runner.run(ask()))["remote"] == "203.0.113.7"


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", V2_START + b"\x20\x00\x00\x00"])
async def test_a_health_check_is_the_hop_itself(header: bytes) -> None:
    async with door("127.0.0.0/8") as (port, _):
        assert body(await exchange(port, header + GET))["remote"] == "127.0.0.1"


async def test_a_stranger_is_served_as_itself_and_its_header_is_no_request() -> None:
    async with door("10.0.0.0/8") as (port, _):
        assert body(await exchange(port, GET))["remote"] == "127.0.0.1"
        for header in (V1, V2):
            assert (await exchange(port, header + GET)).startswith(b"HTTP/1.0 400")


@pytest.mark.parametrize(
    "start", [GET, b"\x16\x03\x01" + bytes(100), b"PROXY TCP4 1\r\n", V1[:-2] + b" \r\n", b"PROXY x\n"]
)
async def test_a_hop_without_a_whole_header_is_cut_off(start: bytes) -> None:
    async with door("127.0.0.0/8", timeout_s=0.05) as (port, prefaced):
        assert await exchange(port, start) == b""
        assert not prefaced.waiting


async def test_a_second_header_is_no_request() -> None:
    async with door("127.0.0.0/8") as (port, _):
        assert (await exchange(port, V1 + V1 + GET)).startswith(b"HTTP/1.0 400")


async def test_waiting_connections_are_bounded_in_time_and_number() -> None:
    async with door("127.0.0.0/8", waiting_max=1, timeout_s=60.0) as (port, prefaced):
        slow_reader, slow = await asyncio.open_connection("127.0.0.1", port)
        slow.write(V1[:10])
        await slow.drain()
        while not prefaced.waiting:  # noqa: ASYNC110 - the loop turns until the connection is accepted
            await asyncio.sleep(0)
        assert await exchange(port, b"") == b"", "past the bound"
        slow.write(V1[10:] + GET)
        assert body(await slow_reader.read())["remote"] == "203.0.113.7"
        assert not prefaced.waiting
        slow.close()
    async with door("127.0.0.0/8", timeout_s=0.01) as (port, prefaced):
        assert await exchange(port, V2[:20]) == b""
        assert not prefaced.waiting


async def test_cleanup_cuts_what_still_waits() -> None:
    async with door("127.0.0.0/8", timeout_s=60.0) as (port, prefaced):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not prefaced.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(ConnectionError):
        if not await reader.read():
            raise ConnectionResetError
    writer.close()


async def test_a_service_eats_it_at_its_door_only() -> None:
    config = ServiceConfig(secret="s3", trusted_hops=("127.0.0.1",), proxy_protocol=True)
    async with running(Demo(config)) as service:
        request = GET.replace(b"/who", b"/quick")
        assert (await exchange(int(str(service.line["port"])), V1 + request)).endswith(b"quick")
        assert await exchange(int(str(service.line["port"])), request) == b""
        assert (await get(service.admin + "/healthz"))[0] == 200


def test_a_config_of_hops_is_checked() -> None:
    check_doors(ServiceConfig(trusted_hops=("10.0.0.0/8",), proxy_protocol=True))
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1/8"):
        check_doors(ServiceConfig(trusted_hops=("10.0.0.1/8",)))
    with pytest.raises(ConfigError, match="needs 'trusted_hops'"):
        check_doors(ServiceConfig(proxy_protocol=True))
