"""The proxies of case `proxy`, each set up as its users would for one upstream, on one core, and as a process of ours.

Every one keeps connections to the client and to the upstream alive, and logs nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.lean_http import request_bytes
from nearsay.cli.stack import toml

START_TIMEOUT_S = 120.0  # LiteLLM imports for half a minute here
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
LITELLM_KEY = "sk-0123456789abcdef0123456789abcdef"  # it refuses to start without one
TEXT = "Good morning, how are you?"
NATIVE = request_bytes("/v1/translate", orjson.dumps({"text": TEXT, "source": "en", "target": "de", "tier": "edge"}))
OPENAI = request_bytes(
    "/v1/chat/completions",
    orjson.dumps({"model": "echo", "messages": [{"role": "user", "content": TEXT}]}),
    (("Authorization", f"Bearer {LITELLM_KEY}"),),
)

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log error;
worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    keepalive_requests 1000000;
    upstream edge {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ proxy_pass http://edge; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""
HAPROXY = """
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend edge
backend edge
    server edge 127.0.0.1:{upstream}
"""
LITELLM = """
model_list:
  - model_name: echo
    litellm_params: {{model: openai/echo, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""


@dataclass(frozen=True)
class Upstream:
    """Ports of the echo edge."""

    link: int
    http: int


@dataclass(frozen=True)
class Rival:
    """A proxy that runs: where, as what, and what is posted to it."""

    name: str
    port: int
    pid: int
    request: bytes


def version(command: Sequence[str]) -> str:
    """First line that names the version; "" where the program isn't."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[0]


@asynccontextmanager
async def running(name: str, upstream: Upstream, folder: Path, cpu: int, litellm: Path | None) -> AsyncIterator[Rival]:
    """Start one of PROXIES on `cpu` and wait until its port answers."""
    port = _free_port()
    command = _command(name, port, upstream, folder, litellm)
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(cpu), *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path.cwd()
    )
    try:
        await _answers(name, port, process)
        yield Rival(name, port, _worker(process.pid), OPENAI if name == "litellm" else NATIVE)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()


def _command(name: str, port: int, upstream: Upstream, folder: Path, litellm: Path | None) -> list[str]:
    config = folder / f"{name}.conf"
    fields = {"port": port, "upstream": upstream.http, "folder": folder, "key": LITELLM_KEY}
    if name == "nginx":
        config.write_text(NGINX.format(**fields))
        return ["nginx", "-c", str(config)]
    if name == "haproxy":
        config.write_text(HAPROXY.format(**fields))
        return ["haproxy", "-f", str(config)]
    if name == "litellm":
        assert litellm is not None
        config.write_text(LITELLM.format(**fields))
        return [str(litellm), "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    config.write_text(
        toml({"port": port, "admin_port": 0, "edges": [f"ws://127.0.0.1:{upstream.link}/link"], "in_flight_max": 8192})
    )
    return [sys.executable, "-m", "proxy", "--config", str(config)]


async def _answers(name: str, port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            if process.returncode is not None:
                raise SystemExit(f"{name} ended with status {process.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(POLL_S)
            else:
                writer.close()
                return


def _worker(pid: int) -> int:
    """The process that does the work: nginx has a master beside it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
