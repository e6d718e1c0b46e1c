"""A proxy as run_service runs it: config, ready line, the runner's settings, drain, exit status."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.service import run_service
from nearsay.runtime.stop import Stop
from nearsay.runtime.tasks import Tasks
from proxy.__main__ import run
from proxy.app import build
from proxy.compress import compress_now
from proxy.config import ProxyConfig, check
from proxy.core.limits import AnswerLimits
from tests.kit.fake_edge import FakeEdge, echo, silence

BODY = {"text": "good morning", "source": "en", "target": "de"}


@asynccontextmanager
async def running(edge: FakeEdge, stop: Stop) -> AsyncIterator[aiohttp.ClientSession]:
    config = ProxyConfig(edges=(await edge.start(),), port=0, admin_port=0, drain_timeout_s=5.0)
    tasks, ready = Tasks(), asyncio.get_running_loop().create_future()
    service = tasks.spawn(run_service(build(config), stop=stop, announce=ready.set_result), name="service")
    try:
        line = json.loads(await asyncio.wait_for(ready, 10.0))
        assert (line["service"], line["state"]) == ("proxy", "ready")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{line['port']}") as http:
            yield http
        stop.ask()
        await asyncio.wait_for(service, 10.0)
    finally:
        await tasks.close()
        await edge.close()


async def test_a_service_answers_and_stops() -> None:
    stop = Stop()
    async with running(FakeEdge(), stop) as http, http.post("/v1/translate", json=BODY) as answer:
        assert (await answer.json())["translations"][0]["text"] == "GOOD MORNING"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_the_service_port_leaves_bodies_compressed(coding: str) -> None:
    """Else aiohttp inflates a bomb before any bound of ours is asked."""
    zeros = bytes(50_000_000)
    bomb = zlib.compress(zeros) if coding == "deflate" else compress_now(zeros, coding, AnswerLimits())
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    async with running(FakeEdge(), Stop()) as http, http.post("/v1/translate", data=bomb, headers=headers) as answer:
        expected = "unsupported_media_type" if coding == "deflate" else "body_too_large"
        assert (await answer.json(content_type=None))["code"] == expected


async def test_a_request_that_comes_while_draining_is_answered() -> None:
    """It came on a connection that was open: to its client this proxy is as good as the one that takes over."""
    edge, stop = FakeEdge(silence), Stop()
    async with running(edge, stop) as http:
        tasks = Tasks()
        first = tasks.spawn(http.post("/v1/translate", json=BODY), name="request")
        await edge.wait_for(lambda: len(edge.requests) == 1)
        edge.script = echo
        async with http.post("/v1/translate", json=BODY) as answer:
            assert answer.status == 200
        stop.ask()
        async with http.post("/v1/translate", json=BODY) as late:
            assert (late.status, late.headers["Connection"]) == (200, "close")
        first.cancel()
        await tasks.close()


async def test_the_service_port_cancels_what_a_client_left() -> None:
    edge = FakeEdge(silence)
    async with running(edge, Stop()) as http:
        tasks = Tasks()
        request = tasks.spawn(http.post("/v1/translate", json=BODY), name="request")
        await edge.wait_for(lambda: len(edge.requests) == 1)
        request.cancel()
        await edge.wait_for(lambda: edge.cancelled == 1)
        await tasks.close()


def test_every_default_is_a_legal_config() -> None:
    assert check(ProxyConfig()) == ProxyConfig()


def test_a_door_for_strangers_needs_keys() -> None:
    with pytest.raises(ConfigError, match="keys: at least one"):
        check(ProxyConfig(host="0.0.0.0", secret="s"))
    check(ProxyConfig(host="0.0.0.0", secret="s", keys=("k",)))
    check(ProxyConfig(host="::1"))
    check(ProxyConfig(host="localhost"))


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as wrong:
        check(ProxyConfig(host="10.0.0.1", edges=(), keys=()))
    assert len(wrong.value.problems) == 2
    with pytest.raises(ConfigError, match="empty key"):
        check(ProxyConfig(keys=("k", "")))


def test_a_file_and_overrides_reach_the_limits(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('edges = ["ws://a/link"]\n[request]\ntexts_max = 7\n[answer]\nheartbeat_s = 1\n')
    config = load_config(
        file, ProxyConfig, {"port": "0", "request.text_chars_max": "9", "edges": "ws://b/link,ws://c/link"}
    )
    assert (config.request.texts_max, config.request.text_chars_max, config.answer.heartbeat_s) == (7, 9, 1.0)
    assert config.edges == ("ws://b/link", "ws://c/link")
    assert msgspec.structs.replace(config.request, text_chars_max=50_000, texts_max=256) == ProxyConfig().request


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--set", "edgess=x"], "edgess"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--set", "request.texts_max=many"], "request.texts_max"),
        (["--config", "/nowhere.toml"], "nowhere.toml"),
        (["--set", "host=0.0.0.0"], "keys"),
        (["--set", "edges=[]"], "edges"),
    ],
)
def test_a_wrong_command_line_is_told_by_name(argv: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    assert named in capsys.readouterr().err
