"""`nearsay up` as a whole, with services that only pretend."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import tempfile
import tomllib
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from nearsay.cli import stack, up
from nearsay.cli.main import app
from nearsay.cli.up import First, show_firsts
from tests.client.fake_proxy import FakeProxy

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def pretended_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stack, "MODULES", dict.fromkeys(("origin", "edge", "proxy"), "tests.cli.fake_stack"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["up", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_shows_its_url_and_first_translations_then_drains(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    async def then_signalled(url: str) -> None:
        await show_firsts(url)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(up, "show_firsts", then_signalled)
    code, out, err = run("--port", "0", "--verbose")
    assert code == 0
    first_url = re.search(r"http://\S+", out)
    proxy_port = re.search(r"proxy +port (\d+)", out)
    assert first_url and proxy_port and first_url[0] == f"http://127.0.0.1:{proxy_port[1]}"
    assert "en-de edge     GOOD MORNING, HOW ARE YOU? [de]" in out
    assert "en-pt origin   GOOD MORNING, HOW ARE YOU? [pt]" in out
    assert "edge_run" in out
    assert re.findall(r"(\w+): drained", err) == ["proxy", "edge", "origin"]
    assert err.splitlines()[-1] == "stopped"


def test_stopped_while_it_shows_first_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    async def signalled(_: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(up, "show_firsts", signalled)
    code, _, err = run("--port", "0")
    assert code == 0
    assert "again" not in err


def test_a_service_that_dies_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIES", "origin")
    code, out, err = run("--port", "0")
    assert (code, out) == (1, "")
    assert "error: origin ended with status 1\n  no model could be read\n" in err


def test_without_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    async def signalled(_: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(up, "show_firsts", signalled)
    code, out, _ = run("--port", "0", "--no-origin")
    assert code == 0
    assert "edge" in out and "origin" not in out


def _edge_of(region: str) -> str:
    [routing] = Path(tempfile.gettempdir()).glob("nearsay-*/routing.toml")
    [url] = tomllib.loads(routing.read_text())["regions"][region]["edges"]
    return str(url)


def test_emulated_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    async def through_a_relay_then_signalled(_: str) -> None:
        url = _edge_of("us")
        async with aiohttp.ClientSession(url.replace("ws", "http").removesuffix("/link")) as http:
            begin = asyncio.get_running_loop().time()
            async with http.get("/link") as answer:
                told.append(f"{answer.status} {asyncio.get_running_loop().time() - begin >= 0.18}")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(up, "show_firsts", through_a_relay_then_signalled)
    code, out, _ = run("--port", "0", "--regions", "2")
    assert code == 0
    assert re.search(r"edge-eu port \d+, admin port \d+, 4 ms away, pid \d+\n", out)
    assert re.search(r"edge-us port \d+, admin port \d+, 90 ms away, pid \d+\n", out)
    assert told == ["400 True"], "the handshake's round trip and the request's"


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, out, err = run("--port", str(port))
    assert (code, out) == (1, "")
    assert f"port {port} in use" in " ".join(err.split())


async def test_pairs_that_nothing_serves_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeProxy().serving() as proxy:
        monkeypatch.setattr(up, "FIRST_TEXT", "reject unsupported_pair")
        await show_firsts(proxy.url)
        monkeypatch.setattr(up, "FIRST_TEXT", "reject origin_unavailable")
        monkeypatch.setattr(up, "FIRST_WAIT_S", 0.0)
        monkeypatch.setattr(up, "FIRSTS", (First("en", "pt", "origin"),))
        await show_firsts(proxy.url)
    shown = capsys.readouterr()
    assert "stage" not in shown.out
    assert shown.err.startswith("no first translation by en-pt origin: origin_unavailable")
