"""infra/regions/haproxy.cfg as it is: HTTP/2 and TLS in front of a real proxy process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from nearsay.runtime.link import Stream
from nearsay.wire.messages import Translate, Update
from tests.e2e.stack import ROOT, start, write_toml
from tests.e2e.test_nginx_sse import WITHIN_S, connect, free_port
from tests.kit.fake_edge import FakeEdge, Script, echo

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CURL = shutil.which("curl")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(HAPROXY is None or CURL is None, reason="haproxy or curl is not installed (Debian packages)"),
]
CONFIG = ROOT / "infra" / "regions" / "haproxy.cfg"


@dataclass
class Front:
    """Where it listens, and whom a client must trust."""

    url: str
    authority: Path

    async def curl(self, *arguments: str) -> asyncio.subprocess.Process:
        assert CURL is not None
        return await asyncio.create_subprocess_exec(
            CURL, "-sN", "--http2", "--cacert", self.authority, *arguments, stdout=asyncio.subprocess.PIPE
        )


@asynccontextmanager
async def front(folder: Path, script: Script = echo) -> AsyncIterator[Front]:
    """A fake edge, a proxy process and HAProxy before it."""
    assert HAPROXY is not None
    edge = FakeEdge(script)
    config = write_toml(folder / "proxy.toml", {"port": 0, "admin_port": 0, "edges": [await edge.start()]})
    proxy = await asyncio.to_thread(start, "proxy", config)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(folder / "front.pem")
    port = free_port()
    settings = {
        "NEARSAY_FRONT": f"127.0.0.1:{port}",
        "NEARSAY_CERT": str(folder / "front.pem"),
        "NEARSAY_PROXY": f"127.0.0.1:{proxy.port}",
        "NEARSAY_PROXY_ADMIN": str(proxy.ready["admin_port"]),
    }
    process = await asyncio.create_subprocess_exec(HAPROXY, "-q", "-f", CONFIG, env={**os.environ, **settings})
    try:
        _, writer = await connect(port, process)
        writer.close()
        yield Front(f"https://localhost:{port}", folder / "ca.pem")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await asyncio.to_thread(proxy.terminate)
        await edge.close()


def asked(**more: object) -> str:
    return json.dumps({"text": "good morning", "source": "en", "target": "de", **more})


async def test_http2_and_tls_reach_the_proxy(tmp_path: Path) -> None:
    async with front(tmp_path) as at:
        curl = await at.curl("-w", "\n%{http_version} %{http_code}", "--json", asked(), f"{at.url}/v1/translate")
        out, _ = await asyncio.wait_for(curl.communicate(), WITHIN_S)
    body, _, said = out.decode().rpartition("\n")
    assert said == "2 200"
    assert json.loads(body)["translations"][0]["text"] == "GOOD MORNING"


async def test_each_event_arrives_before_the_next_one_is_made(tmp_path: Path) -> None:
    arrived = [asyncio.Event() for _ in range(3)]

    async def stepwise(stream: Stream, message: Translate) -> None:
        for number, seen in enumerate(arrived):
            await stream.send(Update(0, number, 0, "segment", f"segment {number}"))
            await seen.wait()
        await echo(stream, message)

    async with front(tmp_path, stepwise) as at:
        curl = await at.curl("--json", asked(stream=True), f"{at.url}/v1/translate")
        assert curl.stdout is not None
        for number, seen in enumerate(arrived):
            await asyncio.wait_for(curl.stdout.readuntil(b'"segment %d"' % number), WITHIN_S)
            seen.set()
        await asyncio.wait_for(curl.stdout.readuntil(b"event: done"), WITHIN_S)
        await asyncio.wait_for(curl.wait(), WITHIN_S)
