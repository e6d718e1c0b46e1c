"""The admin port: metrics, health, state and config of one process, or of all that a parent started. Never on the
service port. Health is for whoever asks; everything else wants the admin secret, if there is one."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
import orjson
from aiohttp import web

from nearsay.runtime.config import ServiceConfig, redacted
from nearsay.runtime.metrics import Metrics
from nearsay.wire.messages import State


class Stateful(Protocol):
    """What has a state: a process' lifecycle, or all processes of a parent."""

    @property
    def state(self) -> State: ...
    @property
    def notes(self) -> Mapping[str, object]: ...


Measured = Callable[[], Awaitable[Metrics]]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def admin_routes(
    config: ServiceConfig,
    lifecycle: Stateful,
    measured: Measured,
    also: Callable[[], Mapping[str, object]] = dict,
) -> list[web.RouteDef]:
    """Routes: /metrics /healthz /readyz /stats /state /config. `also`: more of /stats."""

    async def prometheus(_: web.Request) -> web.Response:
        body = (await measured()).prometheus()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def health(_: web.Request) -> web.Response:
        return shown({"state": lifecycle.state}, 503 if lifecycle.state == "stopped" else 200)

    async def ready(_: web.Request) -> web.Response:
        return shown({"state": lifecycle.state, **lifecycle.notes}, 200 if lifecycle.state == "ready" else 503)

    async def stats(_: web.Request) -> web.Response:
        return shown({**(await measured()).snapshot(), "state": lifecycle.state, **lifecycle.notes, **also()})

    async def state(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode((await measured()).export()), content_type="application/json")

    async def show_config(_: web.Request) -> web.Response:
        return shown(redacted(config))

    return [
        web.get("/healthz", health),
        web.get("/readyz", ready),
        web.get("/metrics", guarded(config, prometheus)),
        web.get("/stats", guarded(config, stats)),
        web.get("/state", guarded(config, state)),
        web.get("/config", guarded(config, show_config)),
    ]


def guarded(config: ServiceConfig, answer: Answer) -> Answer:
    """Only for who shows the admin secret."""
    wanted = f"Bearer {config.admin_secret}".encode()

    async def ask(request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if config.admin_secret and not hmac.compare_digest(given, wanted):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        return await answer(request)

    return ask


def shown(content: object, status: int = 200) -> web.Response:
    """Something as JSON."""
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
