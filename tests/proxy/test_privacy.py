"""What a proxy says about its users in logs at their loudest, metrics, stats and config: nothing. Not their text, keys
or the hashes of these, nor the addresses they come from, by whatever way they were told."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from nearsay.runtime.link import LinkLimits, Peer
from nearsay.runtime.service import run_service
from nearsay.runtime.stop import Stop
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import RateLimited
from nearsay.wire.messages import Hello
from proxy.app import build
from proxy.config import ProxyConfig
from proxy.core.keys import key_hash
from proxy.core.routing_config import Tenant
from tests.kit.fake_edge import FakeEdge
from tests.proxy.test_hostile_http import WITHIN_S
from tests.proxy.test_link_door import ASKED

TEXT, KEY, PLAIN, BAD = "Xylophonquark", "nsk_Quarzuhr", "plainPfefferminz", "badZwetschge"
FROM, TOLD = "127.77.66.55", "203.0.113.77"
SECRETS = [TEXT, KEY, PLAIN, BAD, FROM, TOLD, *(key_hash(key).removeprefix("sha256:") for key in (KEY, PLAIN, BAD))]
HOPS = {"X-Forwarded-For": TOLD, "Forwarded": f"for={TOLD}", "X-Real-IP": TOLD, "CF-Connecting-IP": TOLD}


@asynccontextmanager
async def running(edge: FakeEdge) -> AsyncIterator[dict[str, int]]:
    config = ProxyConfig(
        edges=(await edge.start(),), port=0, admin_port=0, keys=(PLAIN,), drain_idle_s=0.01, log_level="debug"
    )
    tenants = {"acme": Tenant(keys=(key_hash(KEY),), requests_per_s=0.001, burst_s=5000.0)}
    stop, tasks, ready = Stop(), Tasks(), asyncio.get_running_loop().create_future()
    service = tasks.spawn(
        run_service(build(config, tenants=tenants), stop=stop, announce=ready.set_result), name="proxy"
    )
    try:
        yield json.loads(await asyncio.wait_for(ready, WITHIN_S))
        stop.ask()
        await asyncio.wait_for(service, WITHIN_S)
    finally:
        await tasks.close()
        await edge.close()


async def ask(port: int) -> list[int]:
    """Requests of every kind, from an address of their own."""
    connector = aiohttp.TCPConnector(local_addr=(FROM, 0))
    statuses = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, headers=HOPS) as http:
        body = {"text": f"Hello {TEXT}.", "source": "en", "target": "de"}
        for key in (PLAIN, *[KEY] * 7, BAD, ""):
            for more in ({}, {"stream": True}, {TEXT: 1}, {"target": TEXT}, {"session": TEXT}):
                headers = {"Authorization": f"Bearer {key}", "X-Request-ID": TEXT * 9}
                async with http.post("/v1/translate", json=body | more, headers=headers) as answer:
                    statuses.append(answer.status)
        async with http.get(f"/{TEXT}?key={KEY}") as answer:
            statuses.append(answer.status)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FROM, 0))
    writer.write(f"{TEXT} {KEY}\r\nX-Forwarded-For: {TOLD}\r\n\r\n".encode())
    assert b"400" in await asyncio.wait_for(reader.readline(), WITHIN_S)
    writer.close()
    return statuses


async def ask_on_links(port: int) -> None:
    tasks = Tasks()
    for key in (PLAIN, KEY, BAD):
        peer = Peer(
            f"ws://127.0.0.1:{port}/link",
            hello=lambda key=key: Hello("client", secret=key, instance=TEXT),  # type: ignore[misc]
            tasks=tasks,
            limits=LinkLimits(),
            clock=time.monotonic,
        )
        changed = asyncio.Event()
        peer.on_change(changed.set)
        await peer.start()
        await asyncio.wait_for(changed.wait(), WITHIN_S)
        if peer.ready:
            with suppress(RateLimited):
                await (await peer.open(ASKED)).receive()
        await peer.close()
    await tasks.close()


async def test_nothing_of_a_user_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("asyncio").setLevel(logging.INFO)
    async with running(FakeEdge()) as ports:
        statuses = await ask(ports["port"])
        assert {200, 400, 401, 404, 429} <= set(statuses)
        await ask_on_links(ports["port"])
        told = [caplog.text]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{ports['admin_port']}") as admin:
            for page in ("/metrics", "/stats", "/state", "/config"):
                async with admin.get(page) as answer:
                    told.append(await answer.text())
    told.append(caplog.text)
    assert caplog.records
    for secret in SECRETS:
        assert not any(secret in page for page in told), secret
    assert "tenant=acme" in told[2], "the operator's own name for a tenant is what it is counted by"
