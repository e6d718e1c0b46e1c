"""The house rules that a machine can check: sizes, names, rooms, and the walk of one request.

Import contracts are import-linter's (pyproject.toml); `make check` runs them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nearsay", "proxy", "edge_worker", "origin", "bench")
FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 70
REFUSED_NAMES = {"common", "utils", "util", "helpers", "helper", "misc"}
CORES = ("proxy/core", "edge_worker/core", "origin/core", "nearsay/traffic", "nearsay/wire")
IMPURE = {"asyncio", "socket", "aiohttp", "torch", "time", "random", "os", "logging", "threading"}
# The walk of one request (README, "The walk"): file, then the function that a reader follows.
WALK = (
    ("proxy/handlers.py", "translate"),
    ("proxy/service.py", "translate"),
    ("proxy/core/routing.py", "forward"),
    ("edge_worker/server.py", "translate"),
    ("edge_worker/pipeline.py", "translate"),
    ("edge_worker/core/segmenter.py", "segment"),
    ("edge_worker/core/placement.py", "place"),
    ("edge_worker/local_model.py", "translate"),
    ("edge_worker/origin_client.py", "submit"),
    ("origin/server.py", "submit"),
    ("origin/core/scheduler.py", "submit"),
    ("origin/core/scheduler.py", "plan"),
    ("origin/core/scheduler.py", "apply"),
    ("origin/engine_loop.py", "step"),
    ("edge_worker/core/join.py", "add"),
)
PLACEHOLDERS = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|pragma: no cover")


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    doc = ast.get_docstring(function, clean=False)
    return lines - (doc.count("\n") + 1 if doc else 0)


def imported(node: ast.AST) -> set[str]:
    """Top-level names that one import statement brings in."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.split(".")[0]}
    return set()


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_files_and_functions_are_small() -> None:
    too_long = []
    for path in sources(*PACKAGES):
        text = path.read_text()
        if (lines := text.count("\n")) > FILE_LINES_MAX:
            too_long.append(f"{relative(path)}: {lines} lines")
        for function in functions(ast.parse(text)):
            if (lines := code_lines(function)) > FUNCTION_LINES_MAX:
                too_long.append(f"{relative(path)}:{function.lineno} {function.name}: {lines} lines")
    assert not too_long, too_long


def test_every_function_of_ours_is_typed() -> None:
    untyped = [
        f"{relative(path)}:{function.lineno} {function.name}"
        for path in sources(*PACKAGES)
        for function in functions(ast.parse(path.read_text()))
        if function.returns is None
    ]
    assert not untyped, untyped


def test_no_room_for_odds_and_ends() -> None:
    named = [relative(p) for p in sources(*PACKAGES) if REFUSED_NAMES & {*p.relative_to(ROOT).parts, p.stem}]
    assert not named, named


def test_no_placeholder_is_left() -> None:
    left = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in sources(*PACKAGES)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PLACEHOLDERS.search(line)
    ]
    assert not left, left


@pytest.mark.parametrize("core", CORES)
def test_cores_are_pure_and_say_what_they_decide(core: str) -> None:
    for path in sources(core):
        tree = ast.parse(path.read_text())
        brought = set().union(*(imported(node) for node in ast.walk(tree)), set())
        assert not brought & IMPURE, f"{relative(path)} imports {sorted(brought & IMPURE)}"
        if path.name != "__init__.py":
            assert ast.get_docstring(tree), f"{relative(path)} does not open with what it decides"


@pytest.mark.parametrize(("file", "name"), WALK)
def test_the_walk_of_a_request_exists(file: str, name: str) -> None:
    names = {function.name for function in functions(ast.parse((ROOT / file).read_text()))}
    assert name in names, f"{file} has no function {name}: mend the walk in README.md and here together"


def test_the_walk_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [file for file, _ in WALK if file not in readme]
    assert not missing, missing
    assert readme.count("\n") <= 200


@pytest.mark.parametrize("package", ["nearsay", "proxy.app", "edge_worker.app"])
def test_starts_without_torch(package: str) -> None:
    """SDK, proxy and edge install and start without torch, so importing them must not bring it in."""
    code = f"import sys, {package}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
