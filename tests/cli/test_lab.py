from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsay.cli.lab import timeline
from nearsay.cli.main import app
from nearsay.lab.overtake import Passage
from tests.client.fake_proxy import FakeProxy, in_thread


@pytest.fixture(scope="module")
def proxy() -> Iterator[FakeProxy]:
    with in_thread() as fake:
        yield fake


def run(proxy: FakeProxy, *arguments: str) -> tuple[int, str, str]:
    few = ["--bulk", "3", "--interactive", "2", "--gap-ms", "0"]
    result = CliRunner().invoke(app, ["lab", "overtake", "--url", proxy.url, *few, *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_table_of_everyone(proxy: FakeProxy) -> None:
    proxy.requests.clear()
    code, out, _ = run(proxy)
    assert code == 0
    assert "of 2 interactive texts overtook" in out and "of 3 bulk texts" in " ".join(out.split())
    assert {"bulk", "interactive"} <= set(out.replace("│", " ").split())
    kinds = [(request.priority, request.tier, request.stream) for request in proxy.requests]
    assert kinds.count(("batch", "origin", True)) == 3
    assert kinds.count(("interactive", "origin", True)) == 2 + 8  # those alone come first
    assert kinds[:8] == [("interactive", "origin", True)] * 8


def test_json_and_texts_of_ones_own(proxy: FakeProxy, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("one\n\ntwo\n")
    proxy.requests.clear()
    code, out, _ = run(proxy, "--json", "--texts", str(texts), "--to", "pt", "--tier", "edge")
    assert code == 0
    found = json.loads(out)
    assert len(found["passages"]) == 5 and found["alone_ms"]["count"] == 8
    assert {passage["code"] for passage in found["passages"]} == {"ok"}
    bulk = [request for request in proxy.requests if request.priority == "batch"]
    assert sorted(request.texts[0] for request in bulk) == ["one", "one", "two"]
    assert {(request.target, request.tier) for request in bulk} == {("pt", "edge")}


def test_failures(proxy: FakeProxy, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("reject overloaded")
    code, out, err = run(proxy, "--texts", str(texts))
    assert code == 1 and "overloaded" in out
    assert "3 of 5 texts failed: overloaded" in err
    texts.write_text("\n")
    assert run(proxy, "--texts", str(texts))[0] == 2
    assert run(proxy, "--texts", str(tmp_path / "none"))[0] == 2


def test_a_life_on_a_line() -> None:
    assert timeline(Passage("batch", 0, 0.0, 0.5, 1.0), 2.0, 8) == "··███"
    assert timeline(Passage("interactive", 0, 1.0, 1.0, 2.0), 2.0, 8) == "    ████"
    assert timeline(Passage("batch", 0, 0.0, None, 1.0, "expired"), 2.0, 8) == "····█"
    assert timeline(Passage("batch", 0, 0.0, 0.0, 0.0), 0.0, 8) == "█"
