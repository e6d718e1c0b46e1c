from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.toml_lines import Path, key_lines, line_of

TEXT = """\
# a comment = 1
version = "v1 # not a comment"

[regions.eu] # one
edges = [
    "ws://a/link", # [not an array]
    'ws://b/link'
]
location = [50.1,
            8.7]

[regions."us.east"]
edges = ["ws://c/link"]
cost = 1.5; public = 3
"""


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Of everything in a read TOML."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*at, key)
        yield from paths(inner, (*at, key))


def test_lines_of_keys_and_elements() -> None:
    lines = key_lines(TEXT.replace("; public = 3", ""))
    assert lines["version",] == 2
    assert lines["regions",] == lines["regions", "eu"] == 4
    assert [lines["regions", "eu", "edges", i] for i in (0, 1)] == [6, 7]
    assert lines["regions", "eu", "location", 1] == 10
    assert lines["regions", "us.east", "cost"] == 14


def test_every_way_to_write_a_key() -> None:
    text = "\n".join(
        [
            "a.b . c = 1979-05-27 07:32:00",
            '"quoted \\"key\\" \\u00e4" = 1',
            "'literal\\' = 2 # c",
            'x = { y = [1, [2, 3]], "z w" = { v = true } }',
            'multi = """',
            'a = "x" \\"""',
            '  b = 1""""',
            "lit = '''",
            "[no.table]'''",
            "[[rows]]",
            "k = 1",
            "[rows.sub]",
            "k = 2",
            "[[ rows ]]",
            "[[rows.deep]]",
            "k = 3",
        ]
    )
    lines = key_lines(text)
    assert set(paths(tomllib.loads(text))) == set(lines)
    assert lines["a", "b", "c"] == 1
    assert lines['quoted "key" ä',] == 2
    assert lines["literal\\",] == 3
    assert lines["x", "z w", "v"] == lines["x", "y", 1, 0] == 4
    assert lines["lit",] == 8
    assert (lines["rows", 0], lines["rows", 0, "sub", "k"]) == (10, 13)
    assert (lines["rows", 1], lines["rows", 1, "deep", 0, "k"]) == (14, 16)


def test_line_ends_of_windows_count_once() -> None:
    assert key_lines("a = 1\r\n\r\nb = 2\r\n") == {("a",): 1, ("b",): 3}


def test_what_is_missing_is_told_where_it_would_stand() -> None:
    lines = key_lines(TEXT.replace("; public = 3", ""))
    assert line_of(lines, ("regions", "eu", "colour")) == 4
    assert line_of(lines, ("pairs", "en-de")) == 1


KEYS = st.text("ab-_ .\"'\\#=[]ä", max_size=4)
LEAVES = st.one_of(st.integers(), st.booleans(), st.text("a #\"'\\[]{}=,\n", max_size=8))
TREES = st.dictionaries(
    KEYS, st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
)


def inline(value: Any, newlines: Iterator[str]) -> str:
    """TOML of a value. Arrays may go over lines, inline tables don't."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {inline(v, newlines)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(next(newlines) + inline(item, newlines) for item in value) + "]"
    if isinstance(value, str) and value and "'" not in value and "\\" not in value:
        return f"'''\n{value}'''"
    return json.dumps(value)


@given(TREES, st.data())
def test_every_key_has_the_line_that_it_was_written_on(tree: dict[str, Any], data: st.DataObject) -> None:
    newlines = iter(lambda: data.draw(st.sampled_from(["", "\n", " # ]\n"])), None)
    text, expected = "", {}
    for key, value in tree.items():
        text += data.draw(st.sampled_from(["", "\n\n", "# x = [\n"]))
        expected[key,] = text.count("\n") + 1
        text += f"{json.dumps(key)} = {inline(value, newlines)}\n"
    assert tomllib.loads(text) == tree
    lines = key_lines(text)
    assert {path: line for path, line in lines.items() if len(path) == 1} == expected
    assert set(lines) == set(paths(tree))
