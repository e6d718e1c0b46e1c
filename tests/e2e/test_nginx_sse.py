"""A stock nginx in front of the proxy must pass each event on at once, and a client's leaving too."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nearsay.runtime.link import Stream
from nearsay.wire.messages import Translate, Update
from tests.kit.fake_edge import FakeEdge, echo, silence
from tests.kit.proxy_room import ProxyRoom, proxy_room

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx-light)"),
]
WITHIN_S = 10.0
# What Debian ships, but for paths: buffering, HTTP/1.0 to the upstream and gzip are at their defaults.
CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    gzip on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    }}
}}
"""
ASKED = json.dumps({"text": "good morning", "source": "en", "target": "de", "stream": True}).encode()
REQUEST = (
    b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ASKED), ASKED)
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def connect(port: int, process: asyncio.subprocess.Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to nginx, as soon as it listens."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                assert process.returncode is None, "nginx ended"
                await asyncio.sleep(0.01)


@asynccontextmanager
async def nginx(room: ProxyRoom, folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """nginx in front of a proxy, and a connection to it."""
    assert NGINX is not None
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, upstream=room.port))
    process = await asyncio.create_subprocess_exec(NGINX, "-p", folder, "-e", folder / "error.log", "-c", config)
    try:
        reader, writer = await connect(port, process)
        yield reader, writer
        writer.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_each_event_arrives_before_the_next_one_is_made(tmp_path: Path) -> None:
    arrived = [asyncio.Event() for _ in range(3)]

    async def stepwise(stream: Stream, message: Translate) -> None:
        for number, seen in enumerate(arrived):
            await stream.send(Update(0, number, 0, "segment", f"segment {number}"))
            await seen.wait()
        await echo(stream, message)

    async with proxy_room(FakeEdge(stepwise)) as room, nginx(room, tmp_path) as (reader, writer):
        writer.write(REQUEST)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        assert b"200 OK" in head
        assert b"Content-Type: text/event-stream" in head
        assert b"Content-Encoding" not in head
        for number, seen in enumerate(arrived):
            await asyncio.wait_for(reader.readuntil(b'"segment %d"' % number), WITHIN_S)
            seen.set()
        await asyncio.wait_for(reader.readuntil(b"event: done"), WITHIN_S)


async def test_a_client_that_leaves_nginx_cancels_at_the_edge(tmp_path: Path) -> None:
    async def stalls(stream: Stream, message: Translate) -> None:
        await stream.send(Update(0, 0, 0, "partial", "G"))
        await silence(stream, message)

    edge = FakeEdge(stalls)
    async with proxy_room(edge) as room, nginx(room, tmp_path) as (reader, writer):
        writer.write(REQUEST)
        await asyncio.wait_for(reader.readuntil(b"event: partial"), WITHIN_S)
        writer.close()
        await edge.wait_for(lambda: edge.cancelled == 1, WITHIN_S)
