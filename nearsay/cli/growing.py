"""A text that grows, translated as it does: typed on a terminal, or a line for each of its states on a pipe.

What is typed while a translation is under way is taken in when it is there, so nothing is ever asked for that is out of
date by then. The words that the last change left alone are shown apart from those that may still move.
"""

from __future__ import annotations

import os
import re
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import msgspec
from rich.live import Live
from rich.text import Text

from nearsay.cli.console import err, out, write
from nearsay.cli.typed_line import Line
from nearsay.client import Client, Result, Stability
from nearsay.wire.errors import NearsayError, title
from nearsay.wire.messages import Tier

READ_BYTES = 1024
_WORD = re.compile(r"\S+")


class Session(msgspec.Struct, frozen=True):
    """How its texts are translated."""

    name: str
    source: str
    target: str
    tier: Tier
    deadline_ms: float | None
    stability: Stability | None

    def translate(self, client: Client, text: str) -> Result:
        """One state of the text."""
        return client.translate(
            text,
            self.source,
            self.target,
            tier=self.tier,
            deadline_ms=self.deadline_ms,
            session=self.name,
            stability=self.stability,
        )


def run(url: str, key: str, session: Session, *, as_json: bool) -> None:
    """Until the input ends. Raises the NearsayError of a line; one of a typed text is shown, and typing goes on."""
    with Client(url, key=key) as client:
        if sys.stdin.isatty():
            _typed(client, session)
        else:
            for line in sys.stdin.buffer:
                _line(client, session, line.decode(errors="replace").rstrip("\r\n"), as_json)


def settled(before: str, after: str) -> int:
    """How many characters of `after` are words that stood in `before`, at the same place."""
    end = 0
    for old, new in zip(_WORD.finditer(before), _WORD.finditer(after), strict=False):
        if old.group() != new.group():
            break
        end = new.end()
    return end


# ---- a line a state --------------------------------------------------------------------------------------------------


def _line(client: Client, session: Session, text: str, as_json: bool) -> None:
    if not text.strip():
        return write("\n")
    result = session.translate(client, text)
    write((msgspec.json.encode(result).decode() if as_json else result.text) + "\n")


# ---- typed -----------------------------------------------------------------------------------------------------------


def _typed(client: Client, session: Session) -> None:
    line = Line()
    with _keys() as read, _shown() as show:
        view = View(show)
        end, asked = "", ""
        while end != "input":
            end = line.type(b"" if line.ahead else read())
            view.typed(line.text)
            if line.text.strip() and line.text != asked:
                asked = line.text
                began = time.monotonic()
                try:
                    view.translated(session.translate(client, line.text), (time.monotonic() - began) * 1e3)
                except NearsayError as error:
                    view.failed(f"{title(error)} ({error.code})")
            if end:
                view.finish()
                line.clear()
                asked = ""


@contextmanager
def _keys() -> Iterator[Callable[[], bytes]]:
    """The terminal gives every key at once, unechoed, Ctrl-C too; as it was before at the end."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSANOW)
        modes = termios.tcgetattr(terminal)
        modes[1] = before[1]  # output as before: a newline begins a line
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        yield lambda: os.read(terminal, READ_BYTES) or b"\x04"
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _shown() -> Iterator[Callable[[Text, bool], None]]:
    """Draws in place; what is final stays above."""
    err.print("Type; Enter begins the next text, Ctrl-D ends.", style="dim")
    with Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext() as live:

        def show(text: Text, final: bool) -> None:
            if final:
                out.print(text)
            if live is not None:
                live.update(Text("") if final else text, refresh=True)

        yield show


class View:
    """The typed text and its translation, one above the other."""

    def __init__(self, show: Callable[[Text, bool], None]) -> None:
        self._show = show
        self._source = self._text = self._note = ""
        self._settled = 0

    def typed(self, source: str) -> None:
        """The text has changed; the translation is not there yet."""
        self._source = source
        if not source.strip():
            self._text, self._settled, self._note = "", 0, ""
        self._show(self.render(), False)

    def translated(self, result: Result, took_ms: float) -> None:
        """The translation of what was typed."""
        self._settled, self._text = settled(self._text, result.text), result.text
        answer = result.translations[0]
        masked = f", {answer.masked} words held back" if answer.masked else ""
        degraded = f", {answer.degraded_reason}" if answer.degraded else ""
        self._note = f"{answer.tier}, {took_ms:.0f} ms{masked}{degraded}"
        self._show(self.render(), False)

    def failed(self, why: str) -> None:
        """There is no translation of what was typed."""
        self._note = why
        self._show(self.render(), False)

    def finish(self) -> None:
        """The text is done; the next one begins empty."""
        if self._source.strip():
            self._settled = len(self._text)
            self._show(self.render(), True)
        self._source = self._text = self._note = ""
        self._settled = 0

    def render(self) -> Text:
        """What stands is bold, what the last change moved is not."""
        text = Text.assemble((self._source, "cyan"), "\n")
        text.append(self._text[: self._settled], "bold")
        text.append(self._text[self._settled :], "italic yellow")
        return text.append(f"  [{self._note}]" if self._note else "", "dim")
