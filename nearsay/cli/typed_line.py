"""What is typed on a terminal, as the text it comes to.

Decides: what keys do to a line. Must not know: terminals, translations.
Invariant: bytes may be cut anywhere, inside a character or an escape sequence too.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

End = Literal["", "line", "input"]  # typed on; Enter; Ctrl-D or Ctrl-C

CHARS_MAX = 4096  # of a line; what is typed beyond is passed over
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_OPEN_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_LAST_WORD = re.compile(r"\S*\s*\Z")


class Line:
    """One line under way. `text` is what stands in it, `ahead` keys that came behind its end."""

    def __init__(self) -> None:
        self.text = ""
        self.ahead = ""
        self._begun = ""  # an escape sequence without its end
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, data: bytes) -> End:
        """Take in what is ahead and new keys, as far as the next end."""
        keys = _ESCAPE.sub("", self.ahead + self._begun + self._decoder.decode(data))
        self.ahead = self._begun = ""
        if begun := _OPEN_ESCAPE.search(keys):
            keys, self._begun = keys[: begun.start()], keys[begun.start() :]
        for at, key in enumerate(keys):
            end = self._press(key)
            if end:
                self.ahead = keys[at + 1 :]
                return end
        return ""

    def clear(self) -> None:
        """Begin the next line."""
        self.text = ""

    def _press(self, key: str) -> End:
        match key:
            case "\r" | "\n":
                return "line"
            case "\x03" | "\x04":
                return "input"
            case "\x7f" | "\b":
                self.text = self.text[:-1]
            case "\x15":
                self.text = ""
            case "\x17":
                self.text = self.text[: _LAST_WORD.search(self.text).start()]  # type: ignore[union-attr]
            case _ if key.isprintable() and len(self.text) < CHARS_MAX:
                self.text += key
        return ""
