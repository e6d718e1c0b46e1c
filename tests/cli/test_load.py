from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from tests.client.fake_proxy import FakeProxy, in_thread


@pytest.fixture(scope="module")
def proxy() -> Iterator[FakeProxy]:
    with in_thread() as fake:
        yield fake


def run(proxy: FakeProxy, *arguments: str) -> tuple[int, str, str]:
    fast = ["--rate", "200", "--duration", "0.1", "--warmup", "0"]
    result = CliRunner().invoke(app, ["load", "--url", proxy.url, *fast, *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_report(proxy: FakeProxy) -> None:
    code, out, _ = run(proxy, "--arrivals", "constant")
    assert code == 0
    assert "20 of 20 ok" in out
    assert "stage edge_run" in out


def test_json_and_texts_in_turn(proxy: FakeProxy, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("one\n\ntwo\n")
    proxy.requests.clear()
    code, out, _ = run(proxy, "--arrivals", "constant", "--json", "--texts", str(texts), "--transport", "http")
    assert code == 0
    report = json.loads(out)
    assert (report["requests"], report["ok"], report["tiers"]) == (20, 20, {"edge": 20})
    assert sorted(request.texts[0] for request in proxy.requests) == ["one"] * 10 + ["two"] * 10


def test_failures(proxy: FakeProxy, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("reject overloaded")
    code, out, err = run(proxy, "--arrivals", "constant", "--texts", str(texts))
    assert code == 1
    assert "20 overloaded" in " ".join(out.split())
    assert "no request succeeded" in err
    texts.write_text("\n")
    assert run(proxy, "--texts", str(texts))[0] == 2
    assert run(proxy, "--texts", str(tmp_path / "none"))[0] == 2
