from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator

import msgspec
import pytest
from aiohttp import web
from typer.testing import CliRunner

from nearsay.cli.main import app
from nearsay.runtime.model_admin import ModelsReport, ModelState

EDGE = ModelsReport("edge", (ModelState("student@2", "en-de", "edge", "serving"),), (("student@1", "student@2"),))
ORIGIN = ModelsReport(
    "origin",
    (
        ModelState("teacher@1", "en-de", "origin", "serving", 500 << 20),
        ModelState("teacher@2", "en-de", "origin", "left_out", 0, "not_finite", "its logits are no numbers"),
    ),
    notes=("en-fr: has no model.toml",),
)


class Services:
    """An edge, an origin and a proxy, as far as their admin ports tell of models. `asked`: the reloads, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.urls: dict[str, str] = {}
        self._ready: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._loop, self._stop = self._ready.get(timeout=10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        runners = [
            await self._one("edge", self._routes(EDGE, 200)),
            await self._one("origin", self._routes(ORIGIN, 422)),
            await self._one("busy", self._routes(EDGE, 409)),
            await self._one("proxy", []),
        ]
        stop = asyncio.Event()
        self._ready.put((asyncio.get_running_loop(), stop))
        await stop.wait()
        for runner in runners:
            await runner.cleanup()

    def _routes(self, report: ModelsReport, status: int) -> list[web.RouteDef]:
        body = msgspec.json.encode(report)

        async def show(_: web.Request) -> web.Response:
            return web.Response(body=body)

        async def reload(_: web.Request) -> web.Response:
            self.asked.append(report.service)
            return web.Response(body=body, status=status)

        return [web.get("/models", show), web.post("/models/reload", reload)]

    async def _one(self, name: str, routes: list[web.RouteDef]) -> web.AppRunner:
        application = web.Application()
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.urls[name] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    made = Services()
    yield made
    made.close()


def run(services: Services, *arguments: str, at: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and output."""
    admins = [part for name in at for part in ("--admin", services.urls.get(name, name))]
    split = 1 if "reload" in arguments else 0
    result = CliRunner().invoke(
        app, ["models", *arguments[:split], *admins, *arguments[split:]], env={"COLUMNS": "160"}
    )
    return result.exit_code, result.output


def test_what_is_served_and_what_is_not(services: Services) -> None:
    code, output = run(services, at=("origin", "proxy", "edge"))
    assert code == 1, "something is wrong with a model"
    assert "teacher@1" in output and "500" in output
    assert "left out" in output and "not_finite: its logits are no numbers" in output
    assert "en-fr: has no model.toml" in output and "student@2" in output
    code, output = run(services, at=("edge", "proxy"))
    assert code == 0 and "proxy" not in output, "a service without models is passed over"


def test_edges_are_told_before_origins(services: Services) -> None:
    services.asked.clear()
    code, output = run(services, "reload", at=("origin", "edge", "proxy"))
    assert services.asked == ["edge", "origin"]
    assert code == 1 and "edge: student@1 -> student@2" in output


def test_a_good_reload_and_one_under_way(services: Services) -> None:
    assert run(services, "reload", at=("edge",))[0] == 0
    code, output = run(services, "reload", at=("busy",))
    assert code == 1 and "a reload is under way" in output


def test_as_json(services: Services) -> None:
    code, output = run(services, "reload", "--json", at=("edge",))
    assert code == 0
    (report,) = json.loads(output).values()
    assert msgspec.convert(report, ModelsReport) == EDGE


def test_nobody_there(services: Services) -> None:
    code, output = run(services, at=("http://127.0.0.1:1",))
    assert code == 1 and "no service with models answered" in output
    code, output = run(services, at=("proxy",))
    assert code == 1 and "no service with models answered" in output
