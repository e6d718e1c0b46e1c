from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from nearsay.runtime.admin import admin_routes
from nearsay.runtime.config import ServiceConfig
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics, MetricsState
from nearsay.wire.messages import State


class Process:
    """The admin port of a process that the test puts into states."""

    def __init__(self, config: ServiceConfig = ServiceConfig(secret="s3")) -> None:  # noqa: B008 - frozen
        self.lifecycle = Lifecycle()
        self.metrics = Metrics("demo")
        app = web.Application()
        app.add_routes(admin_routes(config, self.lifecycle, self.measured))
        self.server = TestServer(app)

    async def measured(self) -> Metrics:
        return self.metrics

    async def get(self, path: str) -> tuple[int, str, bytes]:
        async with TestClient(self.server) as client, client.get(path) as response:
            return response.status, response.content_type, await response.read()

    async def json(self, path: str) -> Any:
        async with TestClient(self.server) as client, client.get(path) as response:
            assert response.content_type == "application/json"
            return await response.json()


@pytest.mark.parametrize(
    ("state", "health", "ready"),
    [("starting", 200, 503), ("ready", 200, 200), ("draining", 200, 503), ("stopped", 503, 503)],
)
async def test_health_and_readiness(state: State, health: int, ready: int) -> None:
    process = Process()
    process.lifecycle.move(state)
    assert (await process.get("/healthz"))[0] == health
    process = Process()
    process.lifecycle.move(state)
    assert (await process.get("/readyz"))[0] == ready


async def test_what_a_service_has_to_say_besides_its_state() -> None:
    for path in ("/readyz", "/stats"):
        process = Process()
        process.lifecycle.notes["models_left_out"] = {"m@1": "memory"}
        said = await process.json(path)
        assert (said["state"], said["models_left_out"]) == ("starting", {"m@1": "memory"})


async def test_metrics_for_prometheus() -> None:
    process = Process()
    process.metrics.count("seen", what="it")
    status, kind, text = await process.get("/metrics")
    assert (status, kind) == (200, "text/plain") and b'nearsay_demo_seen_total{what="it"} 1.0' in text


async def test_stats() -> None:
    process = Process()
    process.metrics.observe_stages({"e2e": 5.0}, tier="edge", bucket="1-16", pair="en-de")
    stats = await process.json("/stats")
    assert stats["service"] == "demo" and stats["state"] == "starting"
    (row,) = stats["stages"]
    assert (row["stage"], row["tier"], row["bucket"], row["count"]) == ("e2e", "edge", "1-16", 1)
    assert row["p50_ms"] == pytest.approx(5.0, rel=0.03)
    assert set(stats) == {"service", "state", "stages", "counters", "gauges"}


async def test_the_config_shows_no_secret() -> None:
    shown = await Process().json("/config")
    assert shown["secret"] == "***" and shown["host"] == "127.0.0.1"


async def test_with_a_secret_only_health_is_for_whoever_asks() -> None:
    for path in ("/metrics", "/stats", "/state", "/config", "/healthz", "/readyz"):
        for header, good in (
            ({}, False),
            ({"Authorization": "Bearer a4x"}, False),
            ({"Authorization": "Bearer a4"}, True),
        ):
            process = Process(ServiceConfig(admin_secret="a4"))
            process.lifecycle.move("ready")
            async with TestClient(process.server) as client, client.get(path, headers=header) as response:
                assert response.status == (200 if good or path in ("/healthz", "/readyz") else 401), (path, header)
                assert (response.status == 401) == ("WWW-Authenticate" in response.headers)


async def test_the_state_adds_up_elsewhere() -> None:
    process, sum_of_all = Process(), Metrics("demo")
    process.metrics.count("seen", what="it")
    _, _, body = await process.get("/state")
    sum_of_all.absorb(msgspec.json.decode(body, type=MetricsState), worker="7")
    assert sum_of_all.snapshot() == process.metrics.snapshot()
