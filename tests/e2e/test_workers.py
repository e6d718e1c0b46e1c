"""A proxy of several processes under load: what restarts is nobody's business but the operator's."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from nearsay.client import AsyncClient
from nearsay.runtime.tasks import Tasks
from proxy.core.keys import key_hash
from tests.e2e.stack import Service, start, write_toml
from tests.kit.fake_edge import FakeEdge

pytestmark = pytest.mark.e2e

WITHIN_S = 60.0
EVERY_S = 0.01  # open loop: a request is due then, whatever became of the last one
BODY = {"text": "good morning", "source": "en", "target": "de"}


@asynccontextmanager
async def family(folder: Path, **config: Any) -> AsyncIterator[Service]:
    """A proxy of two processes in front of a fake edge."""
    edge = FakeEdge()
    values = {"port": 0, "admin_port": 0, "workers": 2, "edges": [await edge.start()], **config}
    service = await asyncio.to_thread(start, "proxy", write_toml(folder / "proxy.toml", values))
    try:
        yield service
    finally:
        if service.process.poll() is None:
            assert await asyncio.to_thread(service.terminate) == 0
        await edge.close()


class Load:
    """Requests on kept connections and on a link, one every EVERY_S, until it is told to stop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answered = 0
        self.failures: list[str] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        tasks, loop = Tasks(), asyncio.get_running_loop()
        async with aiohttp.ClientSession(self.url) as http, AsyncClient(self.url, transport="link") as sdk:
            due, sent = loop.time(), []
            for number in itertools.count():
                if self._stop.is_set():
                    break
                request = self._sdk(sdk) if number % 4 == 0 else self._http(http)
                sent.append(tasks.spawn(request, name=f"request {number}"))
                due += EVERY_S
                await asyncio.sleep(due - loop.time())
            await asyncio.gather(*sent)

    def stop(self) -> None:
        self._stop.set()

    async def _http(self, http: aiohttp.ClientSession) -> None:
        try:
            async with http.post("/v1/translate", json=BODY) as answer:
                self._note(answer.status == 200 or f"status {answer.status}")
        except aiohttp.ClientError as error:
            self._note(repr(error))

    async def _sdk(self, sdk: AsyncClient) -> None:
        try:
            self._note((await sdk.translate(BODY["text"], "en", "de")).text == "GOOD MORNING" or "a wrong answer")
        except Exception as error:
            self._note(repr(error))

    def _note(self, outcome: bool | str) -> None:
        if outcome is True:
            self.answered += 1
        else:
            self.failures.append(str(outcome))


async def pids(service: Service) -> set[int]:
    workers = (await asyncio.to_thread(service.admin, "/stats"))["workers"]
    return {worker["pid"] for worker in workers}


async def test_a_rolling_restart_under_load_fails_no_request(tmp_path: Path) -> None:
    async with family(tmp_path) as service:
        before = await pids(service)
        load, tasks = Load(service.url), Tasks()
        running = tasks.spawn(load.run(), name="load")
        admin = f"http://127.0.0.1:{service.ready['admin_port']}"
        reload = ["proxy", "reload", "--admin", admin]
        result = await asyncio.to_thread(CliRunner().invoke, app, reload)
        assert result.exit_code == 0 and "2 new processes" in result.output, result.output
        async with asyncio.timeout(WITHIN_S):
            while before & await pids(service):
                pass
        assert len(await pids(service)) == 2
        between = load.answered
        async with asyncio.timeout(WITHIN_S):
            while load.answered < between + 50:  # noqa: ASYNC110
                await asyncio.sleep(EVERY_S)
        load.stop()
        await running
        assert load.failures == [] and load.answered > 100
        stats = await asyncio.to_thread(service.admin, "/stats")
        requests = sum(count for name, count in stats["counters"].items() if name.startswith("requests{code=ok"))
        assert requests == load.answered, "those of the old processes are counted, too"
        await tasks.close()


async def test_kill_9_of_a_process_costs_what_it_had_and_no_connection(tmp_path: Path) -> None:
    async with family(tmp_path) as service:
        os.kill(min(await pids(service)), signal.SIGKILL)
        for _ in range(100):
            async with aiohttp.ClientSession(service.url) as http, http.post("/v1/translate", json=BODY) as answer:
                assert answer.status == 200
        async with asyncio.timeout(WITHIN_S):
            while len(await pids(service)) < 2:
                pass


async def statuses(url: str, key: str, count: int) -> list[int]:
    """Requests at once, each on a connection of its own, so that every process gets some."""

    async def one() -> int:
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(url, headers=headers) as http, http.post("/v1/translate", json=BODY) as answer:
            return answer.status

    return await asyncio.gather(*(one() for _ in range(count)))


async def test_limits_hold_for_all_processes_and_keys_rotate_in_all(tmp_path: Path) -> None:
    routing, edge = tmp_path / "routing.toml", FakeEdge()
    limits = (
        f'[regions.eu]\nedges = ["{await edge.start()}"]\n[tenants.acme]\nrequests_per_s = 0.001\nburst_s = 20000\n'
    )
    old, new = (f'keys = ["{key_hash(key)}"]\n' for key in ("old", "new"))
    routing.write_text(limits + old)
    async with family(tmp_path, routing=str(routing)) as service:
        assert sorted(set(await statuses(service.url, "new", 4))) == [401]
        answered = [status for _ in range(5) for status in await statuses(service.url, "old", 20)]
        assert set(answered) == {200, 429}
        assert 20 <= answered.count(200) <= 21, "one a process at most may slip through a race, but for the first"
        counters = (await asyncio.to_thread(service.admin, "/stats"))["counters"]
        assert counters["quota{tenant=acme,outcome=refused,policy=requests}"] == answered.count(429)
        routing.write_text(limits.replace("0.001", "1000") + new)
        async with asyncio.timeout(WITHIN_S):
            while set(await statuses(service.url, "new", 8)) != {200}:
                pass
            while set(await statuses(service.url, "old", 8)) != {401}:
                pass
    await edge.close()


async def test_what_can_not_be_reloaded_is_told(tmp_path: Path) -> None:
    async with family(tmp_path, workers=0) as service:
        for admin in (f"http://127.0.0.1:{service.ready['admin_port']}", "http://127.0.0.1:9"):
            reload = ["proxy", "reload", "--admin", admin]
            result = await asyncio.to_thread(CliRunner().invoke, app, reload)
            assert result.exit_code == 1
            assert ("workers" if admin[-2:] != ":9" else "no answer") in result.output
