"""A service for tests of what keeps several processes of one: `python -m tests.kit.demo_service FOLDER PARENT|ALONE`.

GET /pid answers with the process id, /slow once FOLDER/go is there. No process starts while FOLDER/broken is there.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from nearsay.runtime.config import ConfigError, ServiceConfig, load_config
from nearsay.runtime.inherited import inherited
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.parent import run_parent
from nearsay.runtime.service import run

POLL_S = 0.01


class Demo:
    """Counts the requests that it answered."""

    name = "demo"

    def __init__(self, config: ServiceConfig, folder: Path) -> None:
        self.config = config
        self.lifecycle = Lifecycle()
        self.metrics = Metrics("demo")
        self._folder = folder
        self._in_flight = 0

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        return [web.get("/pid", self.pid), web.get("/slow", self.slow)]

    def admin_routes(self) -> Iterable[web.RouteDef]:
        return [web.get("/mine", self.mine)]

    async def mine(self, _: web.Request) -> web.Response:
        return web.json_response(os.getpid())

    async def pid(self, _: web.Request) -> web.Response:
        return self._answer()

    async def slow(self, _: web.Request) -> web.Response:
        self._in_flight += 1
        self.metrics.gauge("in_flight", self._in_flight)
        try:
            while not (self._folder / "go").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(POLL_S)
        finally:
            self._in_flight -= 1
        return self._answer()

    def _answer(self) -> web.Response:
        self.metrics.count("answered_here")
        self.metrics.observe_stages({"e2e": 1.0}, tier="edge", bucket="1-16", pair="en-de")
        return web.Response(text=str(os.getpid()))

    async def start(self) -> None:
        if (self._folder / "broken").exists():
            raise ConfigError(["broken"])

    async def drain(self) -> None:
        while self._in_flight:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        pass


class Nothing:
    """Processes that share nothing but their ports. Rows that were left are told."""

    def __init__(self) -> None:
        self.memory = os.memfd_create("nothing")

    def left(self, row: int) -> None:
        print(f"row {row} left", file=sys.stderr, flush=True)

    async def run(self, metrics: Metrics) -> None:
        metrics.count("parent_runs")


def main(folder: Path, how: str) -> int:
    def load() -> ServiceConfig:
        return load_config(folder / "demo.toml", ServiceConfig)

    given = inherited()
    if how == "PARENT" and given is None:
        command = [sys.executable, "-m", "tests.kit.demo_service", str(folder), how]
        return run_parent("demo", command, load, 2, shared=Nothing())
    return run(Demo(load(), folder), given)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
