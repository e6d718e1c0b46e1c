"""Which line of a TOML text each key stands on: what tomllib doesn't say.

Decides: where keys and array elements begin.
Must not know: what they mean. The text has been read by tomllib already, so only a valid one comes here.
Invariants: every key that tomllib finds has a line; a table named several times has the first one.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]  # ("regions", "eu", "edges", 0)

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}\n#]+")  # a number, date or boolean; a date may have a space in it
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""("{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''('{0,2})", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def key_lines(text: str) -> dict[Path, int]:
    """Path of each key, table and array element to its line, from 1."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of a path, or of the innermost table that it would stand in; 1 for the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._lines: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}  # array of tables to its latest index

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self._blank()
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                self._at += 2
                table = self._next_element(self._resolve((), self._keys()))
                self._skip("]")
                self._skip("]")
            elif self._text[self._at] == "[":
                self._at += 1
                table = self._note(self._resolve((), self._keys()))
                self._skip("]")
            else:
                self._pair(table)
            self._blank()
        return self._lines

    def _pair(self, table: Path) -> None:
        line = self._line
        path = table
        for key in self._keys():
            path = (*path, key)
            self._lines.setdefault(path, line)
        self._skip("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._blank()
        opening = self._text[self._at]
        if opening == "[":
            self._at += 1
            self._items(path, "]")
        elif opening == "{":
            self._at += 1
            self._items(path, "}")
        elif opening in "\"'":
            self._string()
        else:
            self._take(_PLAIN)

    def _items(self, path: Path, closing: str) -> None:
        """Elements of an array, or pairs of an inline table."""
        index = 0
        self._blank()
        while self._text[self._at] != closing:
            if self._text[self._at] == ",":
                self._at += 1
            elif closing == "}":
                self._pair(path)
            else:
                self._value(self._note((*path, index)))
                index += 1
            self._blank()
        self._at += 1

    def _keys(self) -> list[str]:
        """A dotted key."""
        keys = []
        while True:
            self._blank()
            keys.append(self._string() if self._text[self._at] in "\"'" else self._take(_BARE))
            self._blank()
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _string(self) -> str:
        """A string; what it says matters for keys only, which are on one line."""
        for kind in _STRINGS:
            if kind.match(self._text, self._at):
                quoted = self._take(kind)
                break
        else:
            raise AssertionError("tomllib has read this text")
        inner = quoted[1:-1]
        return inner if quoted[0] == "'" else _ESCAPE.sub(_unescaped, inner)

    def _resolve(self, path: Path, keys: list[str]) -> Path:
        """A header's path: a key that names an array of tables means its latest one."""
        for number, key in enumerate(keys):
            path = (*path, key)
            if number < len(keys) - 1 and path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _next_element(self, path: Path) -> Path:
        self._note(path)
        self._tables[path] = self._tables.get(path, -1) + 1
        return self._note((*path, self._tables[path]))

    def _note(self, path: Path) -> Path:
        for depth in range(1, len(path) + 1):
            self._lines.setdefault(path[:depth], self._line)
        return path

    def _skip(self, mark: str) -> None:
        self._blank()
        assert self._text[self._at] == mark, "tomllib has read this text"
        self._at += 1

    def _take(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        assert found is not None, "tomllib has read this text"
        self._at = found.end()
        self._line += found[0].count("\n")
        return found[0]

    def _blank(self) -> None:
        """Over white space and comments."""
        while self._at < len(self._text):
            mark = self._text[self._at]
            if mark == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif mark in " \t\n":
                self._line += mark == "\n"
                self._at += 1
            else:
                return


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    return chr(int(digits, 16)) if digits else _ESCAPES.get(found[3], found[3])
