"""A small service run for real: ports, ready line, admin port, drain, signals."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.service import EXIT_CONFIG, EXIT_FAILED, check_doors, run, run_service
from nearsay.runtime.stop import Stop
from nearsay.runtime.tasks import Tasks
from tests.runtime.kit import TIMEOUT_S


class Demo:
    """Answers /slow when the test lets it."""

    name = "demo"

    def __init__(self, config: ServiceConfig | None = None) -> None:
        self.config = config or ServiceConfig(secret="s3")
        self.lifecycle = Lifecycle()
        self.metrics = Metrics("demo")
        self.log: list[str] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_drain = asyncio.Event()
        self.may_drain.set()
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.bodies: list[bytes] = []
        self.left = asyncio.Event()

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        return [
            web.get("/slow", self.slow),
            web.get("/quick", self.quick),
            web.get("/crash", self.crash),
            web.post("/body", self.body),
        ]

    def admin_routes(self) -> Iterable[web.AbstractRouteDef]:
        return [web.get("/own", self.quick)]

    async def slow(self, _: web.Request) -> web.Response:
        self.asked.set()
        self.may_drain.clear()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        finally:
            self.may_drain.set()
        return web.Response(text="slow")

    async def body(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response()

    async def quick(self, _: web.Request) -> web.Response:
        return web.Response(text="quick")

    async def crash(self, _: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def start(self) -> None:
        self.log.append("start")
        await self.may_start.wait()

    async def drain(self) -> None:
        self.log.append("drain")
        await self.may_drain.wait()

    async def stop(self) -> None:
        self.log.append("stop")


class Running:
    def __init__(self, demo: Demo, stop: Stop, line: dict[str, object], task: asyncio.Task[None]) -> None:
        self.demo, self.stop, self.line, self.task = demo, stop, line, task
        self.door = f"http://127.0.0.1:{line['port']}"
        self.admin = f"http://127.0.0.1:{line['admin_port']}"


@asynccontextmanager
async def running(demo: Demo) -> AsyncIterator[Running]:
    tasks = Tasks()
    stop = Stop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    task = tasks.spawn(run_service(demo, stop=stop, announce=lines.put_nowait), name="service")
    line = json.loads(await asyncio.wait_for(lines.get(), TIMEOUT_S))
    yield Running(demo, stop, line, task)
    stop.ask()
    await asyncio.wait_for(task, TIMEOUT_S)
    assert lines.empty()
    await tasks.close()


async def get(url: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status, await response.read()


async def test_a_service_brings_routes_of_its_own_for_the_admin_port() -> None:
    async with running(Demo()) as service:
        assert await get(service.admin + "/own") == (200, b"quick")
        assert (await get(service.door + "/own"))[0] == 404


async def test_a_service_that_can_not_go_on_drains() -> None:
    async with running(Demo()) as service:
        service.demo.lifecycle.fail("it broke")
        await asyncio.wait_for(service.task, TIMEOUT_S)
        assert service.demo.log == ["start", "drain", "stop"]
        service.demo.lifecycle.fail("too late")
        assert service.demo.lifecycle.failure == "it broke"


async def test_what_breaks_while_a_service_ends_is_no_failure() -> None:
    async with running(Demo()) as service:
        service.stop.ask()
        await asyncio.wait_for(service.task, TIMEOUT_S)
        service.demo.lifecycle.fail("the engine has stopped")
        assert service.demo.lifecycle.failure == ""


async def test_it_says_that_it_is_ready_in_one_line_of_json() -> None:
    async with running(Demo()) as service:
        assert service.line["service"] == "demo" and service.line["state"] == "ready"
        assert await get(service.door + "/quick") == (200, b"quick")
        assert service.demo.lifecycle.state == "ready"
    assert service.demo.log == ["start", "drain", "stop"]
    assert service.demo.lifecycle.state == "stopped"
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(service.door + "/quick")


async def test_the_admin_port() -> None:
    async with running(Demo()) as service:
        service.demo.metrics.count("seen")
        service.demo.metrics.observe_stages({"e2e": 5.0}, tier="edge", bucket="1-16", pair="en-de")
        status, text = await get(service.admin + "/metrics")
        assert status == 200 and b"nearsay_demo_seen_total 1.0" in text and b"nearsay_stage_seconds_bucket" in text
        assert await get(service.admin + "/healthz") == (200, b'{"state":"ready"}')
        assert await get(service.admin + "/readyz") == (200, b'{"state":"ready"}')
        stats = json.loads((await get(service.admin + "/stats"))[1])
        assert stats["service"] == "demo" and stats["state"] == "ready" and stats["stages"][0]["count"] == 1
        config = json.loads((await get(service.admin + "/config"))[1])
        assert config["secret"] == "***" and config["host"] == "127.0.0.1"
        assert (await get(service.door + "/metrics"))[0] == 404, "the doors are separate"
        service.demo.lifecycle.state = "draining"
        assert await get(service.admin + "/readyz") == (503, b'{"state":"draining"}')
        service.demo.lifecycle.state = "ready"


async def test_drain_lets_requests_in_flight_finish_and_takes_no_new_connection() -> None:
    tasks = Tasks()
    async with running(Demo()) as service, aiohttp.ClientSession() as http:
        asking = tasks.spawn(get(service.door + "/slow"), name="slow request")
        kept = await http.get(service.door + "/quick")
        await kept.read()
        await service.demo.asked.wait()
        service.demo.lifecycle.subscribe(lambda state: states.append(state))
        states: list[str] = []
        service.stop.ask()
        while "drain" not in service.demo.log:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(service.door + "/quick")
        late = await http.get(service.door + "/quick")  # on a connection that was open before
        assert late.headers["Connection"] == "close" and not service.task.done()
        assert (await get(service.admin + "/readyz"))[0] == 503
        service.demo.may_answer.set()
        assert await asyncio.wait_for(asking, TIMEOUT_S) == (200, b"slow")
        await asyncio.wait_for(service.task, TIMEOUT_S)
        assert states == ["draining", "stopped"]


async def test_a_client_that_leaves_cancels_its_handler() -> None:
    tasks = Tasks()
    async with running(Demo()) as service:
        asking = tasks.spawn(get(service.door + "/slow"), name="slow request")
        await service.demo.asked.wait()
        asking.cancel()
        await asyncio.wait_for(service.demo.left.wait(), TIMEOUT_S)


async def test_bodies_come_as_they_are_sent() -> None:
    async with running(Demo()) as service, aiohttp.ClientSession() as http:
        bomb = gzip.compress(bytes(1 << 20))
        await http.post(service.door + "/body", data=bomb, headers={"Content-Encoding": "gzip"})
        assert service.demo.bodies == [bomb]


async def test_drain_ends_at_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    demo = Demo(ServiceConfig(drain_timeout_s=0.01))
    demo.may_drain.clear()
    async with running(demo):
        pass
    assert "stopping with requests in flight" in caplog.text and demo.log[-1] == "stop"


async def test_a_second_signal_does_not_wait_for_the_drain() -> None:
    demo = Demo()
    demo.may_drain.clear()
    async with running(demo) as service:
        service.stop.ask()
        service.stop.ask()
        await asyncio.wait_for(service.task, TIMEOUT_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it(number: signal.Signals) -> None:
    demo = Demo()
    lines: list[str] = []

    def announce(line: str) -> None:
        lines.append(line)
        os.kill(os.getpid(), number)

    await asyncio.wait_for(run_service(demo, announce=announce), TIMEOUT_S)
    asyncio.get_running_loop().remove_signal_handler(number)
    assert len(lines) == 1 and demo.log == ["start", "drain", "stop"]


async def test_stopping_while_it_starts() -> None:
    demo = Demo()
    demo.may_start.clear()
    stop = Stop()
    stop.ask()
    await asyncio.wait_for(run_service(demo, stop=stop, announce=lambda _: pytest.fail("not ready")), TIMEOUT_S)
    assert demo.log[-1] == "stop" and demo.lifecycle.state == "stopped"


async def test_a_start_that_fails_stops_and_raises() -> None:
    class Broken(Demo):
        async def start(self) -> None:
            raise ConfigError(["no model for en-de"])

    demo = Broken()
    with pytest.raises(ConfigError, match="no model"):
        await run_service(demo, stop=Stop())
    assert demo.log == ["stop"] and demo.lifecycle.state == "stopped"


@pytest.mark.parametrize(
    ("host", "secret", "safe"),
    [
        ("127.0.0.1", "", True),
        ("127.8.8.8", "", True),
        ("::1", "", True),
        ("localhost", "", True),
        ("0.0.0.0", "", False),
        ("::", "", False),
        ("192.168.1.5", "", False),
        ("example.org", "", False),
        ("0.0.0.0", "s3", True),
    ],
)
def test_a_door_to_strangers_needs_a_secret(host: str, secret: str, safe: bool) -> None:
    config = ServiceConfig(host=host, secret=secret)
    if safe:
        check_doors(config)
    else:
        with pytest.raises(ConfigError, match="loopback"):
            check_doors(config)


@pytest.mark.parametrize(
    ("host", "secret", "safe"), [("0.0.0.0", "", False), ("0.0.0.0", "a4", True), ("::1", "", True)]
)
def test_an_admin_port_for_strangers_needs_a_secret_of_its_own(host: str, secret: str, safe: bool) -> None:
    config = ServiceConfig(admin_host=host, admin_secret=secret, secret="s3")
    if safe:
        check_doors(config)
    else:
        with pytest.raises(ConfigError, match="admin_secret"):
            check_doors(config)


async def test_a_request_on_its_way_when_the_drain_begins_is_answered() -> None:
    """On a connection that is idle: closing it at once would lose what its client has just sent."""
    demo = Demo(ServiceConfig(drain_idle_s=TIMEOUT_S))
    async with running(demo) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(str(service.line["port"])))
        asked = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write(asked)
        await reader.readuntil(b"quick")
        service.stop.ask()
        while "drain" not in demo.log:  # noqa: ASYNC110
            await asyncio.sleep(0)
        writer.write(asked)
        late = await asyncio.wait_for(reader.read(), TIMEOUT_S)
        assert late.startswith(b"HTTP/1.1 200") and b"Connection: close" in late and late.endswith(b"quick")
        writer.close()
        await asyncio.wait_for(service.task, TIMEOUT_S)


async def test_connections_behind_a_preface_are_waited_for_too() -> None:
    hops = ServiceConfig(proxy_protocol=True, trusted_hops=("127.0.0.0/8",), drain_idle_s=TIMEOUT_S)
    async with running(Demo(hops)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(str(service.line["port"])))
        writer.write(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"quick"), TIMEOUT_S)
        service.stop.ask()
        while "drain" not in service.demo.log:  # noqa: ASYNC110
            await asyncio.sleep(0)
        writer.write(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), TIMEOUT_S)).endswith(b"quick")
        writer.close()


async def test_a_drain_waits_for_what_came_late_too() -> None:
    demo = Demo(ServiceConfig(drain_idle_s=0.05))
    async with running(demo) as service, aiohttp.ClientSession() as http:
        async with http.get(service.door + "/quick"):
            pass
        service.stop.ask()
        while "drain" not in demo.log:  # noqa: ASYNC110
            await asyncio.sleep(0)
        tasks = Tasks()
        late = tasks.spawn(http.get(service.door + "/slow"), name="late request")
        await demo.asked.wait()
        while demo.log.count("drain") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        demo.may_answer.set()
        assert (await asyncio.wait_for(late, TIMEOUT_S)).status == 200
        await tasks.close()


def test_run_ends_with_1_when_the_service_could_not_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Demo):
        async def start(self) -> None:
            self.lifecycle.fail("it broke")

    demo = Broken()
    assert run(demo) == EXIT_FAILED
    assert "demo: it broke" in capsys.readouterr().err
    assert demo.log == ["drain", "stop"]


def test_run_prints_config_problems_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(Demo(ServiceConfig(port=port))) == EXIT_CONFIG
    assert f"demo: can't listen on 127.0.0.1 port {port}" in capsys.readouterr().err
    assert run(Demo(ServiceConfig(host="0.0.0.0"))) == EXIT_CONFIG


async def test_it_stops_when_whoever_started_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        async with running(Demo(ServiceConfig(stop_with_stdin=True))) as service:
            os.write(write, b"not a word of this counts")
            assert await get(service.door + "/quick") == (200, b"quick")
            os.close(write)
            await asyncio.wait_for(service.task, TIMEOUT_S)
            assert service.demo.log == ["start", "drain", "stop"]


async def test_headers_that_trickle_in_are_cut_off() -> None:
    async with running(Demo(ServiceConfig(keepalive_timeout_s=0.1))) as service:
        for before in (b"", b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(str(service.line["port"])))
            writer.write(before + b"GET /quick HTT")
            answer = await asyncio.wait_for(reader.read(), TIMEOUT_S)
            assert answer.startswith(b"HTTP/1.1 200") == bool(before)
            writer.close()


async def test_a_wrong_config_found_at_the_start_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Demo):
        async def start(self) -> None:
            raise ConfigError(["no such model"])

    with pytest.raises(ConfigError, match="no such model"):
        await run_service(Wrong(), stop=Stop(), announce=print)
    assert not caplog.records


async def test_no_address_and_no_bytes_of_strangers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(Demo()) as service:
        port = int(str(service.line["port"]))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"private text\r\n\r\n")
        assert b"400" in await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        writer.close()
        assert (await get(service.door + "/crash"))[0] == 500
    http = [record for record in caplog.records if record.name == "nearsay.http"]
    assert [record.getMessage() for record in http] == ["Error handling request"], "our crash, not their noise"
    assert "private text" not in caplog.text and "127.0.0.1" not in " ".join(r.getMessage() for r in http)
