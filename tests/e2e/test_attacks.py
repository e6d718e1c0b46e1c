"""What hostile users and careless operators do to three real processes: others are unhurt, nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import aiohttp
import pytest

from tests.e2e.stack import ROOT, Stack, full_stack, post
from tests.e2e.test_faults import wait_until

pytestmark = pytest.mark.e2e

MARKER = "Xylophonquark"  # stands for a user's text, a key, a header
HELLO = {"text": "Good morning.", "source": "en", "target": "de", "tier": "edge"}
SENTENCE = "We moved to the new house last week and the children like the garden. "


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three services that log all they can. Whatever the tests send, no marker is in what was logged."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PROXY", "EDGE", "ORIGIN"):
            patch.setenv(f"NEARSAY_{name}_LOG_LEVEL", "debug")
        with full_stack(tmp_path_factory.mktemp("attacked")) as running:
            yield running
    for service in running.services.values():
        assert MARKER not in "".join(service.stderr), service.name


def send(port: int, data: bytes) -> bytes:
    """Raw bytes to a port; what comes back until the other side closes or a second passes."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5)) as connection:
        connection.sendall(data)
        connection.settimeout(1.0)
        answer = b""
        try:
            while chunk := connection.recv(1 << 16):
                answer += chunk
        except (TimeoutError, ConnectionResetError):
            pass  # kept alive, or cut off: what came is the answer
        return answer


def http(body: bytes, *headers: str) -> bytes:
    lines = ["POST /v1/translate HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_one_long_word_stalls_nobody(stack: Stack) -> None:
    word = {"text": ["pneumonoultramicroscopic" * 2_000] * 4, "source": "en", "target": "de", "tier": "edge"}
    statuses: list[int] = []
    url = stack["proxy"].url
    attack = threading.Thread(target=lambda: statuses.append(post(url, {**word, "deadline_ms": 4000})[0]))
    attack.start()
    took = []
    while attack.is_alive():
        began = time.monotonic()
        assert post(url, {**HELLO, "deadline_ms": 4000})[0] == 200
        took.append(time.monotonic() - began)
    assert statuses[0] in (200, 504)
    # Behind one batch and in one, each some 0.1 s; first come, first served let the first of them wait to the end.
    assert statistics.median(took) < 1.0, took


def test_clients_that_leave_free_everything(stack: Stack) -> None:
    def busy() -> int:
        gauges = {**stack["edge"].admin("/stats")["gauges"], **stack["origin"].admin("/stats")["gauges"]}
        return int(sum(gauges[name] for name in ("segments_waiting", "segments_running", "queued", "running")))

    body = {"text": SENTENCE * 100, "source": "en", "target": "pt", "deadline_ms": 60_000}
    clients = []
    for tier in ("edge", "origin", "refine"):
        for stream in (False, True):
            clients.append(socket.create_connection(("127.0.0.1", stack["proxy"].port)))
            clients[-1].sendall(http(json.dumps({**body, "tier": tier, "stream": stream}).encode()))
    wait_until(lambda: busy() > 0)
    for client in clients:
        client.close()
    wait_until(lambda: busy() == 0)
    assert stack["proxy"].admin("/stats")["gauges"]["in_flight"] == 0


def test_nothing_of_a_stranger_is_in_metrics_or_stops_the_service(stack: Stack) -> None:
    port, text = stack["proxy"].port, MARKER.encode()
    good = json.dumps({**HELLO, "text": f"Hello {MARKER}."}).encode()
    attacks = [
        b"GET /" + text * 1000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + text + b"\r\n\r\n",
        b"GET /" + text + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        http(good, f"Authorization: Bearer {MARKER}", "X-Request-ID: " + MARKER * 20),
        http(good, f"X-Forwarded-For: {MARKER}", f"Forwarded: for={MARKER}", f"X-Real-IP: {MARKER}"),
        http(good[:-3]),
        http(b'{"text": "' + text + b' \\ud800"}'),
        http(b'{"' + text + b'": 1}'),
        http(good, f"Content-Encoding: {MARKER}"),
        http(good, f"Content-Type: {MARKER}/json"),
        http(json.dumps({**HELLO, "target": MARKER}).encode()),
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz" + text + b"\r\n",
    ]
    for attack in attacks:
        assert send(port, attack).startswith(b"HTTP/1."), attack[:80]
    assert post(stack["proxy"].url, HELLO)[0] == 200
    for name in ("proxy", "edge", "origin"):
        for page in ("/metrics", "/stats", "/config"):
            assert MARKER not in str(stack[name].admin(page)), (name, page)


async def test_garbage_on_a_link_ends_that_link_only(stack: Stack) -> None:
    async with aiohttp.ClientSession() as session:
        for name in ("proxy", "edge", "origin"):
            for garbage in (MARKER.encode(), b"", b"\x91" * 50_000, b"\xdd\xff\xff\xff\xff", bytes(600 << 10)):
                async with session.ws_connect(stack[name].link_url) as link:
                    await link.send_bytes(garbage)
                    end = await link.receive(timeout=10)
                    assert end.type is aiohttp.WSMsgType.CLOSE, (name, garbage[:9])
    assert post(stack["proxy"].url, HELLO)[0] == 200


def test_a_frozen_origin_costs_only_those_who_insist_on_it(stack: Stack) -> None:
    far = {**HELLO, "target": "pt", "tier": "origin", "deadline_ms": 1000}
    url, origin = stack["proxy"].url, stack["origin"].process
    assert post(url, {**far, "deadline_ms": 20_000})[0] == 200
    origin.send_signal(signal.SIGSTOP)
    try:
        status, problem = post(url, far)
        assert (status, problem["code"]) == (504, "deadline_exceeded")
        assert post(url, {**far, "tier": "auto"})[0] == 200
        status, answer = post(url, {**far, "tier": "refine"})
        assert status == 200 and answer["translations"][0]["degraded_reason"] == "deadline_exceeded"
    finally:
        origin.send_signal(signal.SIGCONT)
    wait_until(lambda: post(url, far)[0] == 200)


def test_services_end_with_a_killed_nearsay_up() -> None:
    command = [sys.executable, "-c", "from nearsay.cli.main import app; app()", "up", "--port", "0", "--no-origin"]
    up = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert up.stdout is not None
        ports: list[int] = []
        for line in up.stdout:
            ports += [int(port) for port in re.findall(r"port (\d+)", line)]
            if len(ports) == 4:
                break
        assert len(ports) == 4 and all(map(accepts, ports))
    finally:
        os.kill(up.pid, signal.SIGKILL)
        up.wait()
    wait_until(lambda: not any(map(accepts, ports)))


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
