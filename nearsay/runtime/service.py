"""How a process of ours starts, says that it is ready, drains and stops."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, runtime_checkable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from nearsay.runtime.admin import admin_routes
from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.preface import PrefacedRunner
from nearsay.runtime.tasks import Tasks
from nearsay.wire.hops import TrustedHops

_log = logging.getLogger(__name__)
_http_log = logging.getLogger("nearsay.http")
_LAG_PERIOD_S = 0.1
_CLEANUP_TIMEOUT_S = 1.0  # for connections that are still there after the drain
_STDIN_BYTES = 4096
# An engine's thread and the event loop share the interpreter: at Python's 5 ms each answer may wait that long for it.
# At an origin under load it took p95 of `unaccounted` from 4.8 ms to 0.6 ms.
SWITCH_INTERVAL_S = 0.0005
EXIT_FAILED, EXIT_CONFIG = 1, 2


class Service(Protocol):
    """What a service brings; the rest is here."""

    name: str  # "proxy"
    lifecycle: Lifecycle
    metrics: Metrics

    @property
    def config(self) -> ServiceConfig: ...

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """Routes of the service port."""

    async def start(self) -> None:
        """Load, warm up, connect; the service port opens after it."""

    async def drain(self) -> None:
        """Take nothing new, return when what is in flight has ended; cancelled after the config's timeout."""

    async def stop(self) -> None:
        """Release everything; called exactly once, also when `start` failed or was never reached."""


@runtime_checkable
class HasAdminRoutes(Protocol):
    """A service that shows more on its admin port than all do."""

    def admin_routes(self) -> Iterable[web.AbstractRouteDef]:
        """Routes of the admin port."""


class Stop:
    """Asked once: drain. Asked twice: don't wait for the drain."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        """Signal handler."""
        (self.hurried if self.asked.is_set() else self.asked).set()


def run(service: Service) -> int:
    """Run a service until a signal stops it, on uvloop when that is installed; returns the exit status."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    level = service.config.log_level.upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_service(service))
    except ConfigError as error:
        for problem in error.problems:
            print(f"{service.name}: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    if service.lifecycle.failure:
        print(f"{service.name}: {service.lifecycle.failure}", file=sys.stderr)
        return EXIT_FAILED
    return 0


async def run_service(
    service: Service, *, stop: Stop | None = None, announce: Callable[[str], None] | None = None
) -> None:
    """Bind, start, announce, wait for SIGTERM or SIGINT (or `stop`, or the service's own failure), drain, stop.

    Prints one line of JSON when ready: service, port, admin_port, state. Raises ConfigError for a door that is unsafe
    or taken.
    """
    config = service.config
    check_doors(config)
    stop = stop or _stop_on_signals()
    announce = announce or partial(print, flush=True)  # whoever waits for the line reads a pipe
    tasks = Tasks()
    shown: list[web.AbstractRouteDef] = [*admin_routes(config, service.lifecycle, service.metrics)]
    if isinstance(service, HasAdminRoutes):
        shown += service.admin_routes()
    admin = await _runner(shown, config)
    door = await _runner(service.routes(), config, service.lifecycle)
    try:
        if config.stop_with_stdin:
            tasks.spawn(_stop_with_stdin(stop), name="stdin")
        admin_port = await _listen(admin, config.admin_host, config.admin_port)
        if await _started(service, stop, tasks):
            port = await _listen(door, config.host, config.port)
            tasks.spawn(_watch_lag(service.metrics), name="loop lag")
            service.lifecycle.move("ready")
            service.lifecycle.subscribe(lambda _: stop.asked.set())  # whatever comes after ready is an end
            ready = {"service": service.name, "port": port, "admin_port": admin_port, "state": "ready"}
            announce(json.dumps(ready))
            if service.lifecycle.failure:
                stop.ask()
            await stop.asked.wait()
            await _drain(service, door, stop, tasks)
    finally:
        await door.cleanup()  # first: the last bytes of answers are written
        await service.stop()
        service.lifecycle.move("stopped")
        await admin.cleanup()
        await tasks.close()


def check_doors(config: ServiceConfig) -> None:
    """Refuse a service port that strangers can reach without a secret, and hops that are none. Raises ConfigError."""
    problems = []
    if not config.secret and not _is_loopback(config.host):
        problems.append(f"'host' {config.host} is not loopback: set 'secret', or bind 127.0.0.1")
    try:
        hops = TrustedHops(config.trusted_hops)
    except ValueError as error:
        problems.append(f"'trusted_hops': {error}")
    else:
        if config.proxy_protocol and not hops:
            problems.append("'proxy_protocol' needs 'trusted_hops': the networks that it is taken from")
    if problems:
        raise ConfigError(problems)


async def _started(service: Service, stop: Stop, tasks: Tasks) -> bool:
    """Start the service; False when it was stopped meanwhile."""
    starting = tasks.spawn(_start(service), name=f"start {service.name}")
    stopping = tasks.spawn(stop.asked.wait(), name="stop while starting")
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        service.lifecycle.move("draining")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    if (wrong := starting.result()) is not None:
        raise wrong
    return True


async def _start(service: Service) -> ConfigError | None:
    """A wrong config is for whoever wrote it, not a crash to be logged with a traceback."""
    try:
        await service.start()
    except ConfigError as error:
        return error
    return None


async def _drain(service: Service, door: web.AppRunner, stop: Stop, tasks: Tasks) -> None:
    """Close the door to new connections, then wait for what is in flight: not longer than the config's timeout."""
    service.lifecycle.move("draining")
    for site in list(door.sites):
        await site.stop()
    finishing = tasks.spawn(service.drain(), name=f"drain {service.name}")
    hurrying = tasks.spawn(stop.hurried.wait(), name="second signal")
    timeout_s = service.config.drain_timeout_s
    await asyncio.wait((finishing, hurrying), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if not finishing.done():
        _log.warning("stopping with requests in flight")
        finishing.cancel()


async def _runner(
    routes: Iterable[web.AbstractRouteDef], config: ServiceConfig, lifecycle: Lifecycle | None = None
) -> web.AppRunner:
    """A port's HTTP server. Bodies come as they are sent: who wants them inflated bounds that; a client that leaves
    cancels its handler."""
    app = web.Application()
    app.add_routes(routes)

    async def close_when_draining(_: web.Request, response: web.StreamResponse) -> None:
        if lifecycle is not None and lifecycle.state != "ready":
            response.headers["Connection"] = "close"  # the hook comes after aiohttp wrote this header
            response.force_close()

    app.on_response_prepare.append(close_when_draining)
    make: Callable[..., web.AppRunner] = web.AppRunner
    if lifecycle is not None and config.proxy_protocol:
        make = partial(PrefacedRunner, hops=TrustedHops(config.trusted_hops))
    runner = make(
        app,
        access_log=None,
        logger=_http_log,
        shutdown_timeout=_CLEANUP_TIMEOUT_S,
        keepalive_timeout=config.keepalive_timeout_s,
        handler_cancellation=True,
        auto_decompress=False,
    )
    await runner.setup()
    return runner


async def _listen(runner: web.AppRunner, host: str, port: int) -> int:
    """Open a port; returns which. Raises ConfigError when it can't be had."""
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise ConfigError([f"can't listen on {host} port {port}: {error.strerror}"]) from error
    address: tuple[str, int] = runner.addresses[0]
    return address[1]


async def _watch_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        metrics.observe_lag(max(0.0, loop.time() - due))


def _hide_strangers(record: logging.LogRecord) -> bool:
    """aiohttp logs a malformed request with the client's address and bytes of it: noise, and not ours to keep."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        return False
    record.msg, record.args = record.msg.split(" from %s")[0], ()
    return True


_http_log.addFilter(_hide_strangers)


def _stop_on_signals() -> Stop:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    return stop


async def _stop_with_stdin(stop: Stop) -> None:
    """Ask for the stop when whoever started us is gone, however it went: its end of our stdin closed with it."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(_STDIN_BYTES):
        pass  # nothing is said there
    stop.ask()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the event loop of a process: uvloop's when it is installed."""
    try:
        import uvloop  # optional: in every service extra, not needed for correctness
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
