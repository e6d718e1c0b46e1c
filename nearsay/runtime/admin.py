"""The admin port: metrics, health, state and config of one process. Never on the service port."""

from __future__ import annotations

import orjson
from aiohttp import web

from nearsay.runtime.config import ServiceConfig, redacted
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics


def admin_routes(config: ServiceConfig, lifecycle: Lifecycle, metrics: Metrics) -> list[web.RouteDef]:
    """Routes: /metrics /healthz /readyz /stats /config."""

    async def prometheus(_: web.Request) -> web.Response:
        return web.Response(
            body=metrics.prometheus(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def health(_: web.Request) -> web.Response:
        return _json({"state": lifecycle.state}, 503 if lifecycle.state == "stopped" else 200)

    async def ready(_: web.Request) -> web.Response:
        return _json({"state": lifecycle.state, **lifecycle.notes}, 200 if lifecycle.state == "ready" else 503)

    async def stats(_: web.Request) -> web.Response:
        return _json({**metrics.snapshot(), "state": lifecycle.state, **lifecycle.notes})

    async def show_config(_: web.Request) -> web.Response:
        return _json(redacted(config))

    return [
        web.get("/metrics", prometheus),
        web.get("/healthz", health),
        web.get("/readyz", ready),
        web.get("/stats", stats),
        web.get("/config", show_config),
    ]


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
