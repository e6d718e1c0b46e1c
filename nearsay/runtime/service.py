"""How a process of ours starts, says that it is ready, drains and stops."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, runtime_checkable

import msgspec
from aiohttp import web

from nearsay.runtime.admin import Measured, admin_routes, guarded
from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.doors import Door, bind, http_runner
from nearsay.runtime.inherited import Inherited
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.stop import Stop, stop_on_signals, stop_with_stdin
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.tls import DoorTls, check_tls
from nearsay.wire.hops import TrustedHops

_log = logging.getLogger(__name__)
_LAG_PERIOD_S = 0.1
# An engine's thread and the event loop share the interpreter: at Python's 5 ms each answer may wait that long for it.
# At an origin under load it took p95 of `unaccounted` from 4.8 ms to 0.6 ms.
SWITCH_INTERVAL_S = 0.0005
# A request makes hundreds of objects that reference counts free; looking for cycles among them is rarely worth it.
GC_THRESHOLDS = (20_000, 20, 20)
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
        """Return when what is in flight has ended; called again if more came meanwhile on connections that were open,
        cancelled after the config's timeout."""

    async def stop(self) -> None:
        """Release everything; called exactly once, also when `start` failed or was never reached."""


@runtime_checkable
class HasAdminRoutes(Protocol):
    """A service that shows more on its admin port than all do: only to whom that shows the admin secret."""

    def admin_routes(self) -> Iterable[web.RouteDef]:
        """Routes of the admin port."""


@runtime_checkable
class Reloads(Protocol):
    """A service that reads something again at SIGHUP."""

    def reload(self) -> None:
        """Called by the event loop; must not wait."""


def run(service: Service, given: Inherited | None = None) -> int:
    """Run a service until a signal stops it, on uvloop when that is installed; returns the exit status."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    prepare(service.config)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_service(service, given=given))
    except ConfigError as error:
        return refuse(service.name, error)
    finally:
        if given is not None:
            os.write(given.report, msgspec.json.encode(service.metrics.export()))
    if service.lifecycle.failure:
        print(f"{service.name}: {service.lifecycle.failure}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def prepare(config: ServiceConfig) -> None:
    """What any process of ours does first: logs go to stderr, as many files may be open as the system lets us."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=config.log_level.upper(), stream=sys.stderr, format=form)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def refuse(name: str, error: ConfigError) -> int:
    """Say what is wrong with a config; the exit status."""
    for problem in error.problems:
        print(f"{name}: {problem}", file=sys.stderr)
    return EXIT_CONFIG


async def run_service(
    service: Service,
    *,
    stop: Stop | None = None,
    announce: Callable[[str], None] | None = None,
    given: Inherited | None = None,
) -> None:
    """Bind, start, announce, wait for SIGTERM or SIGINT (or `stop`, or the service's own failure), drain, stop.

    Prints one line of JSON when ready: service, port, admin_port, state. Raises ConfigError for a door that is unsafe
    or taken. `given`: by a parent, which has the ports; then the admin port is one that only the parent is told.
    """
    config = service.config
    check_doors(config)
    tls = DoorTls.of(config)
    stop = stop or stop_on_signals()
    announce = announce or partial(print, flush=True)  # whoever waits for the line reads a pipe
    tasks = Tasks()
    shown: list[web.AbstractRouteDef] = [*admin_routes(config, service.lifecycle, _measured(service))]
    if isinstance(service, HasAdminRoutes):
        shown += [_guarded(config, route) for route in service.admin_routes()]
    admin = Door(await http_runner(shown, config))
    door = Door(await http_runner(service.routes(), config, service.lifecycle))
    try:
        if config.stop_with_stdin or given is not None:
            tasks.spawn(stop_with_stdin(stop), name="stdin")
        if tls is not None:
            tasks.spawn(tls.watch(), name="certificates")
        _reload_on_hangup(service, tls)
        at = (config.admin_host, config.admin_port) if given is None else ("127.0.0.1", 0)
        admin_port = await admin.open(bind(*at))
        if await _started(service, stop, tasks):
            sockets = bind(config.host, config.port, dscp=config.dscp) if given is None else given.sockets()
            port = await door.open(sockets, tls)
            tasks.spawn(_watch_lag(service.metrics), name="loop lag")
            service.lifecycle.move("ready")
            gc.freeze()  # what lives as long as the process is never looked at again
            gc.set_threshold(*GC_THRESHOLDS)
            service.lifecycle.subscribe(lambda _: stop.asked.set())  # whatever comes after ready is an end
            ready = {"service": service.name, "port": port, "admin_port": admin_port, "state": "ready"}
            announce(json.dumps(ready))
            if service.lifecycle.failure:
                stop.ask()
            await stop.asked.wait()
            await _drain(service, door, stop, tasks)
    finally:
        await door.close()  # first: the last bytes of answers are written
        await service.stop()
        service.lifecycle.move("stopped")
        await admin.close()
        await tasks.close()


def check_doors(config: ServiceConfig) -> None:
    """Refuse ports that strangers can reach without a secret, TLS that is half of one, hops that are none.

    Raises ConfigError.
    """
    problems = check_tls(config)
    if not config.secret and not _is_loopback(config.host):
        problems.append(f"'host' {config.host} is not loopback: set 'secret', or bind 127.0.0.1")
    if not config.admin_secret and not _is_loopback(config.admin_host):
        problems.append(f"'admin_host' {config.admin_host} is not loopback: set 'admin_secret', or bind 127.0.0.1")
    try:
        hops = TrustedHops(config.trusted_hops)
    except ValueError as error:
        problems.append(f"'trusted_hops': {error}")
    else:
        if config.proxy_protocol and not hops:
            problems.append("'proxy_protocol' needs 'trusted_hops': the networks that it is taken from")
    if config.proxy_protocol and config.tls_cert is not None:
        problems.append("'proxy_protocol' and 'tls_cert' exclude each other: who sends the header ends TLS, too")
    if problems:
        raise ConfigError(problems)


def _reload_on_hangup(service: Service, tls: DoorTls | None) -> None:
    """Where there is something to read again; otherwise SIGHUP ends the process, as a closed terminal should."""
    reloads = [tls.reload] if tls is not None else []
    if isinstance(service, Reloads):
        reloads.append(service.reload)
    if reloads:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: [reload() for reload in reloads])


def _guarded(config: ServiceConfig, route: web.RouteDef) -> web.RouteDef:
    return web.RouteDef(route.method, route.path, guarded(config, route.handler), route.kwargs)


def _measured(service: Service) -> Measured:
    async def measured() -> Metrics:
        return service.metrics

    return measured


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


async def _drain(service: Service, door: Door, stop: Stop, tasks: Tasks) -> None:
    """Close the door to new connections, then wait for what is in flight: not longer than the config's timeout."""
    service.lifecycle.move("draining")
    door.shut()
    finishing = tasks.spawn(_finish(service, door), name=f"drain {service.name}")
    hurrying = tasks.spawn(stop.hurried.wait(), name="second signal")
    timeout_s = service.config.drain_timeout_s
    await asyncio.wait((finishing, hurrying), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if not finishing.done():
        _log.warning("stopping with requests in flight")
        finishing.cancel()


async def _finish(service: Service, door: Door) -> None:
    """Requests that were on their way on connections that were open are answered, too: nobody is told to come again."""
    await service.drain()
    if not await door.left(service.config.drain_idle_s):
        await service.drain()


async def _watch_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        metrics.observe_lag(max(0.0, loop.time() - due))


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
