"""Typing along: what keys come to, what counts as settled, and the command on a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from typer.testing import CliRunner

from nearsay.cli.growing import View, settled
from nearsay.cli.main import app
from nearsay.cli.typed_line import CHARS_MAX, Line
from nearsay.client import Result, Stability, Translation
from tests.client.fake_proxy import FakeProxy, in_thread

WAIT_S = 30.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[FakeProxy]:
    with in_thread() as fake:
        yield fake


# ---- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (b"ab\x7fc", "ac"),
        (b"\x7f\x7fa", "a"),
        (b"one two\x17", "one "),
        (b"one two  \x17\x17x", "x"),
        (b"one\x15two", "two"),
        (b"a\x1b[D\x1b[1;5Cb\x1bOPc\x1bxd", "abcd"),  # arrows, F1, Alt-x
        (b"a\x00\x01\tb", "ab"),
        ("é😀".encode(), "é😀"),
        (b"a" * (CHARS_MAX + 9), "a" * CHARS_MAX),
    ],
)
def test_what_keys_come_to(keys: bytes, text: str) -> None:
    line = Line()
    assert line.type(keys) == "" and line.text == text


def test_ends_and_what_is_typed_ahead() -> None:
    line = Line()
    assert line.type(b"one\rtwo\x04three") == "line" and line.text == "one"
    line.clear()
    assert line.ahead and line.type(b"") == "input" and line.text == "two"
    line.clear()
    assert line.type(b"\x1b") == "" and (line.text, line.ahead) == ("three", "")  # half an arrow key
    assert Line().type(b"\x03") == "input"


@given(st.lists(st.sampled_from(["a", "é", "😀", " ", "\x7f", "\x17", "\x1b[A", "\x1bOP"]), max_size=12), st.data())
def test_however_the_bytes_are_cut(keys: list[str], data: st.DataObject) -> None:
    typed = "".join(keys).encode()
    whole, cut = Line(), Line()
    whole.type(typed)
    at = 0
    while at < len(typed):
        size = data.draw(st.integers(1, 4))
        cut.type(typed[at : at + size])
        at += size
    assert cut.text == whole.text


# ---- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "stands"),
    [
        ("", "Ich", ""),
        ("Ich denke", "Ich denke, ich", "Ich"),
        ("Ich denke", "Ich denke ich", "Ich denke"),
        ("Ich  denke", "Ich denke", "Ich denke"),
        ("Das ist", "Es ist", ""),
        ("Ich denke ich", "Ich denke", "Ich denke"),
    ],
)
def test_what_stands(before: str, after: str, stands: str) -> None:
    assert after[: settled(before, after)] == stands


def shown(text: Text) -> list[tuple[str, str]]:
    """The parts that have a style of their own."""
    return [(str(span.style), text.plain[span.start : span.end]) for span in text.spans]


def test_the_view_tells_apart_what_stands_and_what_moves() -> None:
    drawn: list[tuple[Text, bool]] = []
    view = View(lambda text, final: drawn.append((text, final)))

    def say(source: str, text: str) -> None:
        view.typed(source)
        view.translated(Result((Translation(text, "en", "origin", "m@1", masked=1),), {}, "r"), 12.3)

    say("I", "Ich")
    say("I think", "Ich denke")
    assert shown(drawn[-1][0]) == [
        ("cyan", "I think"),
        ("bold", "Ich"),
        ("italic yellow", " denke"),
        ("dim", "  [origin, 12 ms, 1 words held back]"),
    ]
    view.failed("Too busy")
    assert drawn[-1][0].plain == "I think\nIch denke  [Too busy]"
    view.finish()
    assert drawn[-1][1] and ("bold", "Ich denke") in shown(drawn[-1][0])
    view.typed("")
    assert drawn[-1][0].plain == "\n" and not drawn[-1][1]
    count = len(drawn)
    view.finish()
    assert len(drawn) == count, "an empty text leaves nothing behind"


# ---- the command -----------------------------------------------------------------------------------------------------


def run(proxy: FakeProxy, *arguments: str, stdin: bytes) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["translate", "--url", proxy.url, "--to", "de", *arguments], input=stdin)
    return result.exit_code, result.stdout_bytes.decode(), result.stderr


def test_each_line_of_a_pipe_is_the_texts_next_state(proxy: FakeProxy) -> None:
    before = len(proxy.requests)
    assert run(proxy, "--session", "s", "--tier", "origin", stdin=b"a\na b\r\n\na b c") == (
        0,
        "A [de]\nA B [de]\n\nA B C [de]\n",
        "",
    )
    asked = proxy.requests[before:]
    assert [request.texts for request in asked] == [("a",), ("a b",), ("a b c",)]
    assert {(request.session, request.tier, request.stability) for request in asked} == {("s", "origin", None)}
    code, said, _ = run(proxy, "--session", "s", "--bias", "0.4", "--mask", "2", "--json", stdin=b"a")
    assert code == 0 and json.loads(said)["translations"][0]["text"] == "A [de]"
    assert proxy.requests[-1].stability == Stability(0.4, 2)


def test_a_line_that_is_refused_ends_it_by_name(proxy: FakeProxy) -> None:
    code, said, why = run(proxy, "--session", "s", stdin=b"a\nreject overloaded\nb\n")
    assert (code, said) == (1, "A [de]\n") and "overloaded" in why


def test_options_of_growing_texts_are_refused_elsewhere(proxy: FakeProxy) -> None:
    for arguments in (("--mask", "1"), ("--bias", "0.1", "--session", "s", "hello")):
        code, _, why = run(proxy, *arguments, stdin=b"a")
        assert code == 2 and "--session, and no text" in why


def test_typed_on_a_terminal(proxy: FakeProxy) -> None:
    """A real process on a pseudo-terminal: a text grows, is corrected, and stays when the next one begins."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from nearsay.cli.main import app; app()", "translate", "--to", "de"]
    command += ["--url", proxy.url, "--session", "s"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    )
    os.close(theirs)
    seen = b""

    def until(wanted: bytes) -> None:
        nonlocal seen
        while wanted not in seen:
            assert select.select([ours], [], [], WAIT_S)[0], (wanted, seen)
            seen += os.read(ours, 65_536)

    try:
        until(b"Ctrl-D ends")
        os.write(ours, b"helo")
        until(b"HELO [de]")
        os.write(ours, b"\x7flo")
        until(b"HELLO [de]")
        os.write(ours, b"\rreject overloaded")
        until(b"(overloaded)")
        os.write(ours, b"\x03")
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
