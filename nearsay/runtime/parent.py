"""How a parent of several processes runs: binds, starts them, adds up what they measured, replaces them, stops them."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial

import aiohttp
import msgspec
from aiohttp import web

from nearsay.runtime.admin import admin_routes, guarded, shown
from nearsay.runtime.child import ChildFailed
from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.doors import Door, bind, http_runner
from nearsay.runtime.metrics import Metrics, MetricsState
from nearsay.runtime.service import EXIT_CONFIG, check_doors, prepare, refuse
from nearsay.runtime.stop import Stop, stop_on_signals, stop_with_stdin
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.workers import Shared, Worker, Workers
from nearsay.wire.messages import State

ASK_EVERY_S = 2.0  # what a killed process measured since then is lost
ASK_TIMEOUT_S = 2.0
EXIT_FAILED = 1
_log = logging.getLogger(__name__)


class Parent:
    """The parent of one service. `state` is that of all its processes together."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        load: Callable[[], ServiceConfig],
        count: int,
        *,
        shared: Shared,
        stop: Stop | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """`load` reads the config and raises ConfigError; `command` starts one process with it."""
        self._name = name
        self._command = command
        self._load = load
        self._config = load()
        self._count = count
        self._shared = shared
        self._stop = stop
        self._announce = announce or partial(print, flush=True)
        self._tasks = Tasks()
        self._ended = Metrics(name)  # what processes that are no more have measured, and the parent itself
        self._reloading = False
        self._workers: Workers | None = None
        self.notes: dict[str, object] = {}

    @property
    def state(self) -> State:
        """Ready while any process serves."""
        if self._stop is not None and self._stop.asked.is_set():
            return "draining"
        places = self._workers.places if self._workers is not None else []
        return "ready" if any(worker is not None and worker.child.running for worker in places) else "starting"

    async def run(self) -> None:
        """Until SIGTERM or SIGINT, or `stop`. Raises ConfigError, and ChildFailed when the first start fails."""
        config = self._config
        check_doors(config)
        stop = self._stop = self._stop or stop_on_signals()
        sockets = bind(config.host, config.port, dscp=config.dscp)
        routes = admin_routes(config, self, self._measured, self._about)
        routes.append(web.post("/reload", guarded(config, self._on_reload)))
        routes.append(web.get("/{path:.*}", guarded(config, self._pass_on)))
        admin = Door(await http_runner(routes, config))
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_TIMEOUT_S))
        workers = self._workers = Workers(
            self._name,
            self._command,
            config,
            self._count,
            doors=[made.fileno() for made in sockets],
            shared=self._shared,
            tasks=self._tasks,
            ended=lambda state: self._ended.absorb(state, worker=None),
        )
        try:
            if config.stop_with_stdin:
                self._tasks.spawn(stop_with_stdin(stop), name="stdin")
            admin_port = await admin.open(bind(config.admin_host, config.admin_port))
            self._tasks.spawn(self._shared.run(self._ended), name="shared state")
            if await self._started(workers, stop):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
                self._tasks.spawn(self._ask_often(), name="ask workers")
                port = sockets[0].getsockname()[1]
                ready = {"service": self._name, "port": port, "admin_port": admin_port, "state": "ready"}
                self._announce(json.dumps(ready))
                await stop.asked.wait()
                self._tasks.spawn(self._hurry(workers, stop), name="second signal")
        finally:
            await workers.stop()
            for made in sockets:
                made.close()
            await admin.close()
            await self._http.close()
            await self._tasks.close()

    async def _started(self, workers: Workers, stop: Stop) -> bool:
        """False when it was stopped meanwhile. Raises ChildFailed."""
        starting = self._tasks.spawn(workers.start(), name="start workers")
        stopping = self._tasks.spawn(stop.asked.wait(), name="stop while starting")
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False

    async def _hurry(self, workers: Workers, stop: Stop) -> None:
        await stop.hurried.wait()
        workers.hurry()

    # ---- reload ------------------------------------------------------------------------------------------------------

    async def reload(self) -> None:
        """New processes with the config as it is now. Raises ConfigError, ChildFailed: then the old ones go on."""
        assert self._workers is not None
        if self._reloading:
            raise ConfigError(["a reload is under way"])
        self._reloading = True
        try:
            self._load()
            await self._workers.reload()
        finally:
            self._reloading = False

    def _on_hangup(self) -> None:
        self._tasks.spawn(self._reload_and_log(), name="reload")

    async def _reload_and_log(self) -> None:
        try:
            await self.reload()
        except (ConfigError, ChildFailed) as error:
            _log.error("the old processes go on: %s", error)

    async def _on_reload(self, request: web.Request) -> web.Response:
        """POST /reload: answers when the new processes serve."""
        if "Origin" in request.headers:  # a web page that its reader has open beside this machine's admin port
            return shown({"error": "not for browsers"}, 403)
        try:
            await self.reload()
        except (ConfigError, ChildFailed) as error:
            return shown({"error": str(error)}, 409)
        return shown(self._about())

    async def _pass_on(self, request: web.Request) -> web.Response:
        """A page of its service's own is answered by one of the processes, as it sees things."""
        assert self._workers is not None
        for worker in self._workers.alive:
            try:
                status, body, kind = await self._get(worker, request.path)
                return web.Response(status=status, body=body, content_type=kind)
            except (aiohttp.ClientError, TimeoutError):
                continue
        return shown({"error": "no process answers"}, 503)

    # ---- what all of them measured -----------------------------------------------------------------------------------

    def _about(self) -> dict[str, object]:
        workers = self._workers
        assert workers is not None
        alive = [
            {"worker": worker.row, "pid": worker.child.pid, "state": "draining" if worker.draining else "ready"}
            for worker in workers.alive
        ]
        return {"workers": alive, "restarts": workers.restarts, "reloads": workers.reloads}

    async def _measured(self) -> Metrics:
        """Of those that are alive and of those that were."""
        assert self._workers is not None
        await asyncio.gather(*(self._ask(worker) for worker in self._workers.alive))
        together = Metrics(self._name)
        together.absorb(self._ended.export(), worker="parent")
        for worker in self._workers.alive:  # read again: one that ended meanwhile is among those that were
            if worker.last is not None:
                together.absorb(worker.last, worker=str(worker.row) if worker.child.running else None)
        return together

    async def _ask(self, worker: Worker) -> None:
        """Keep what a process measured so far; one that doesn't answer in time is what it was."""
        try:
            status, body, _ = await self._get(worker, "/state")
            worker.last = msgspec.json.decode(body, type=MetricsState) if status == 200 else worker.last
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
            _log.debug("%s does not say what it measured", worker.child.name)

    async def _get(self, worker: Worker, path: str) -> tuple[int, bytes, str]:
        """A page of a process' own admin port: status, body, type. Raises aiohttp.ClientError, TimeoutError."""
        if worker.child.ready is None:
            raise aiohttp.ClientConnectionError
        headers = {"Authorization": f"Bearer {self._config.admin_secret}"} if self._config.admin_secret else {}
        url = f"http://127.0.0.1:{worker.child.ready.admin_port}{path}"
        async with self._http.get(url, headers=headers) as answer:
            return answer.status, await answer.read(), answer.content_type

    async def _ask_often(self) -> None:
        assert self._workers is not None
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            await asyncio.gather(*(self._ask(worker) for worker in self._workers.alive))


def run_parent(
    name: str, command: Sequence[str], load: Callable[[], ServiceConfig], count: int, *, shared: Shared
) -> int:
    """Run the processes of a service until a signal stops them; the exit status. Raises ConfigError."""
    parent = Parent(name, command, load, count, shared=shared)
    prepare(parent._config)
    try:
        asyncio.run(parent.run())
    except ConfigError as error:
        return refuse(name, error)
    except ChildFailed as failure:
        return EXIT_CONFIG if failure.returncode == EXIT_CONFIG else EXIT_FAILED
    return 0
