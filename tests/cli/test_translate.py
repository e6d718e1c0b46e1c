"""The whole command against a fake proxy, which answers in capitals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from nearsay.cli.translate import PIECES_IN_FLIGHT, Job, translate_pieces, translate_text
from nearsay.client import AsyncClient, Result, Translation
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import InvalidRequest
from tests.client.fake_proxy import FakeProxy, in_thread


@pytest.fixture(scope="module")
def proxy() -> Iterator[FakeProxy]:
    with in_thread() as fake:
        yield fake


def run(proxy: FakeProxy, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["translate", "--url", proxy.url, "--to", "de", *arguments], input=stdin)
    return result.exit_code, result.stdout_bytes.decode(), result.stderr


def test_a_text(proxy: FakeProxy) -> None:
    assert run(proxy, "Good", "morning") == (0, "GOOD MORNING [de]\n", "")
    asked = proxy.requests[-1]
    assert (asked.source, asked.target, asked.tier, asked.stream) == ("en", "de", "auto", True)


def test_drafts_are_told_apart(proxy: FakeProxy) -> None:
    code, out, err = run(proxy, "--tier", "refine", "--session", "s", "--deadline-ms", "5000", "hello")
    assert (code, out, err) == (0, "HELLO [de]\n", "draft: HELLO [de]\n")
    assert (proxy.requests[-1].session, proxy.requests[-1].budget_ms <= 5_000) == ("s", True)


def test_stdin_keeps_its_layout(proxy: FakeProxy) -> None:
    assert run(proxy, stdin=b" a\r\n") == (0, " A\r\n [de]", "")
    assert run(proxy, stdin=b" \n\n") == (0, " \n\n", "")


def test_json(proxy: FakeProxy) -> None:
    code, out, _ = run(proxy, "--json", "hello")
    assert code == 0
    assert json.loads(out)["translations"][0]["text"] == "HELLO [de]"


def test_files(proxy: FakeProxy, tmp_path: Path) -> None:
    a, b, folder = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "out"
    folder.mkdir()
    a.write_bytes(b"one\r\n")
    b.write_bytes(b"\n")
    assert run(proxy, str(a), str(b), "-o", str(folder))[0] == 0
    assert (folder / "a.txt").read_bytes() == b"ONE\r\n [de]"
    assert (folder / "b.txt").read_bytes() == b"\n"
    assert proxy.requests[-1].priority == "batch"
    code, out, _ = run(proxy, "--json", str(a))
    assert (code, json.loads(out)) == (0, {"file": str(a), "text": "ONE\r\n [de]"})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reject unknown_language"], 2, "error: The language is not known (unknown_language): as asked"),
        (["reject overloaded"], 1, "error: Too busy; try again later (overloaded): as asked"),
        (["hello", "--deadline-ms", "-1"], 2, "deadline_ms must be a positive"),
        (["hello", "--url", "nonsense"], 2, "must look like http://127.0.0.1:8100"),
        (["hello", "-o", "/"], 2, "is a folder"),
        (["hello", "--tier", "best"], 2, "best"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(proxy: FakeProxy, arguments: list[str], code: int, message: str) -> None:
    found, out, err = run(proxy, *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_input_that_is_not_utf8(proxy: FakeProxy) -> None:
    code, _, err = run(proxy, stdin=b"\xff")
    assert (code, err) == (2, "error: stdin is not UTF-8 (byte 0)\n")


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with FakeProxy().serving() as fake, AsyncClient(fake.url) as client:
        yield client


class SlowClient:
    """Answers later texts sooner, and counts."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def translate(self, text: str, source: str, target: str, **_: object) -> Result:
        self.running += 1
        self.most = max(self.most, self.running)
        for _turn in range(20 - int(text.split()[1]) % 20):
            await asyncio.sleep(0)
        self.running -= 1
        return Result((Translation(text.upper(), source, "edge", "m@1"),), {}, "r")


async def test_pieces_come_in_order_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = [*(f"line {n}\n" for n in range(30)), " \n"]
    monkeypatch.setattr("nearsay.cli.translate.pieces", lambda _: iter(cut))
    tasks, client = Tasks(), SlowClient()
    found = [pair async for pair in translate_pieces(client, "", Job("en", "de"), tasks)]  # type: ignore[arg-type]
    assert found == [(piece, piece.upper()) for piece in cut]
    assert client.most == PIECES_IN_FLIGHT
    await tasks.close()


async def test_a_piece_that_fails_ends_the_rest(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsay.cli.translate.pieces", lambda _: iter(["a", "reject invalid_text", "hang", "hang"]))
    tasks, found = Tasks(), []
    with pytest.raises(InvalidRequest):
        async for piece, _ in translate_pieces(client, "", Job("en", "de"), tasks):
            found.append(piece)
    assert found == ["a"]
    await tasks.close()
    assert len(tasks) == 0


async def test_segments_are_shown_as_they_come(client: AsyncClient) -> None:
    shown: list[str] = []
    result = await translate_text(client, "hello", Job("en", "de"), shown.append)
    assert "".join(shown) == result.text == "HELLO [de]"
    assert shown[0] == "HELLO [de]", "by its segment, not by the last event"
