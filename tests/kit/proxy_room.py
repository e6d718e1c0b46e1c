"""A whole proxy in the test's process: fake edges behind it, a real HTTP port in front of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from nearsay.runtime.tasks import Tasks
from nearsay.runtime.transport import Connect, Transport
from proxy.app import Proxy, build
from proxy.config import ProxyConfig
from tests.kit.fake_edge import FakeEdge


@dataclass
class ProxyRoom:
    """`http` is a client of `url`."""

    proxy: Proxy
    edges: list[FakeEdge]
    url: str
    port: int
    http: aiohttp.ClientSession
    tasks: Tasks

    async def post(self, body: Mapping[str, Any] | bytes, **options: Any) -> tuple[int, Any, Mapping[str, str]]:
        """POST /v1/translate: status, decoded JSON, headers."""
        if isinstance(body, bytes):
            options = {"data": body, "headers": {"Content-Type": "application/json"}} | options
        else:
            options = {"json": {"text": "good morning", "source": "en", "target": "de"} | dict(body)} | options
        async with self.http.post("/v1/translate", **options) as answer:
            return answer.status, await answer.json(content_type=None), answer.headers

    async def until(
        self, condition: Callable[[], bool], on_change: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Wait until `condition` holds; looked at whenever an edge's link, or what `on_change` tells of, changes."""
        changed = asyncio.Event()
        for subscribe in [on_change] if on_change is not None else [p.on_change for p in self.proxy.pool.peers]:
            subscribe(changed.set)
        async with asyncio.timeout(5.0):
            while not condition():
                changed.clear()
                await changed.wait()


def memory_connect(edges: Mapping[str, FakeEdge]) -> Connect:
    """`Connect` to fake edges in memory, by URL."""

    async def connect(url: str) -> Transport:
        return await edges[url].connect(url)

    return connect


@asynccontextmanager
async def proxy_room(*edges: FakeEdge, config: ProxyConfig | None = None, **options: Any) -> AsyncIterator[ProxyRoom]:
    """Run a proxy in front of `edges`, linked in memory, listening on a free loopback port as run_service would."""
    by_url = {f"ws://edge-{number}/link": edge for number, edge in enumerate(edges)}
    fields = {field: getattr(config or ProxyConfig(), field) for field in ProxyConfig.__struct_fields__}
    config = ProxyConfig(**(fields | {"edges": tuple(by_url) or ("ws://nowhere/link",), "port": 0}))
    proxy = build(config, connect=memory_connect(by_url), rng=random.Random(1), **options)
    app = web.Application()
    app.add_routes(proxy.routes())
    runner = web.AppRunner(app, handler_cancellation=True, auto_decompress=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    await proxy.start()
    proxy.lifecycle.move("ready")
    url = f"http://127.0.0.1:{port}"
    tasks = Tasks()
    try:
        async with aiohttp.ClientSession(url, auto_decompress=False) as http:
            yield ProxyRoom(proxy, list(edges), url, port, http, tasks)
    finally:
        await tasks.close()
        await proxy.stop()
        await runner.cleanup()
        for edge in edges:
            await edge.close()
