"""`nearsay doctor`: what is installed, which engine and precision each model gets and why, which ports are free.

Each fact is a Finding, so that the table and the JSON say the same. A "problem" makes the command fail; "missing" is
only something that an extra would add.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from nearsay.cli.console import EXIT_FAILED, err, out, write
from nearsay.cli.options import AsJson, Models
from nearsay.cli.ports import DEFAULTS, in_use
from nearsay.cli.stack import MODULES
from nearsay.text.engine import open_engine
from nearsay.text.errors import TextError
from nearsay.text.registry import ModelEntry, Registry

Status = Literal["ok", "missing", "problem", "info"]

PROBE_TIMEOUT_S = 60.0
# In a process of its own: importing torch takes seconds and may crash, and this command has to tell of it.
TORCH_PROBE = (
    "import json, torch; print(json.dumps({'version': torch.__version__, 'threads': torch.get_num_threads(),"
    " 'cuda': [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]}))"
)
STYLES: Mapping[Status, str] = {"ok": "green", "missing": "yellow", "problem": "red", "info": ""}
_REQUIREMENT = re.compile(r'([A-Za-z0-9._-]+).*?(?:extra == ["\']([a-z-]+)["\'])?$')


def command(models: Models = None, as_json: AsJson = False) -> None:
    """What is installed here, which engine each model gets and why, which ports are free."""
    with err.status("looking around"):
        findings = list(examine(models or ()))
    if as_json:
        write(msgspec.json.encode(findings).decode() + "\n")
    else:
        out.print(findings_table(findings))
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


class Finding(msgspec.Struct, frozen=True):
    """One fact. `area` groups them: system, package, service, model, engine, port."""

    area: str
    name: str
    status: Status
    detail: str


def examine(models: Sequence[Path] = ()) -> Iterator[Finding]:
    """Everything, in the order it is shown."""
    yield from _system()
    yield from _packages()
    yield from _services()
    registry = Registry.discover(models)
    yield from _models(registry)
    yield from _edge_engines(registry)
    yield _torch()
    yield from _ports()


def findings_table(findings: Sequence[Finding]) -> Table:
    """Findings as a table, problems in red."""
    table = Table(title="nearsay doctor", title_justify="left")
    for column in ("", "what", "status", "detail"):
        table.add_column(column, overflow="fold")
    area = ""
    for finding in findings:
        shown, area = ("" if finding.area == area else finding.area), finding.area
        table.add_row(shown, Text(finding.name), Text(finding.status, STYLES[finding.status]), Text(finding.detail))
    return table


def _system() -> Iterator[Finding]:
    python_ok = sys.version_info >= (3, 11)
    yield Finding("system", "python", "ok" if python_ok else "problem", platform.python_version())
    yield Finding("system", "cpus", "info", str(len(os.sched_getaffinity(0))))
    found = "found" if shutil.which("nginx") else "not found"
    yield Finding("system", "nginx", "info", f"not needed ({found}): only the test of streaming behind one uses it")


def _packages() -> Iterator[Finding]:
    for name, extras in requirements(metadata.requires("nearsay") or ()).items():
        needed_by = ", ".join(extras) or "the SDK and this command"
        try:
            yield Finding("package", name, "ok", f"{metadata.version(name)}, for {needed_by}")
        except metadata.PackageNotFoundError:
            fix = f"pip install 'nearsay[{extras[0]}]'" if extras else "pip install nearsay"
            yield Finding("package", name, "missing" if extras else "problem", f"for {needed_by}: {fix}")


def requirements(lines: Sequence[str]) -> dict[str, list[str]]:
    """Package name to the extras that need it, none for the base install; those of tests are left out."""
    needed: dict[str, list[str]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        name, extra = match[1].lower(), match[2]
        if extra != "test" and name != "nearsay":
            needed.setdefault(name, []).extend([extra] if extra else [])
    return needed


def _services() -> Iterator[Finding]:
    for service, module in MODULES.items():
        if find_spec(module) is not None:
            yield Finding("service", service, "ok", f"nearsay {service}")
        else:
            yield Finding("service", service, "missing", "not in the wheel: run it from a checkout or an image")


def _models(registry: Registry) -> Iterator[Finding]:
    for entry in registry.entries:
        name = f"{entry.pair} {entry.tier}"
        try:
            entry.verify()
        except TextError as error:
            yield Finding("model", name, "problem", str(error))
        else:
            hashes = "hashes ok" if entry.sha256 else "no hashes listed"
            yield Finding("model", name, "ok", f"{entry.name}, {entry.licence or 'licence not stated'}, {hashes}")
    for problem in registry.problems:
        yield Finding("model", "skipped", "problem", problem)
    if not registry.entries:
        yield Finding(
            "model", "none", "missing", "give folders with --models or NEARSAY_MODELS, or install 'nearsay[pt]'"
        )


def _edge_engines(registry: Registry) -> Iterator[Finding]:
    for entry in registry.entries:
        if entry.tier == "edge":
            yield _edge_engine(entry)


def _edge_engine(entry: ModelEntry) -> Finding:
    try:
        engine = open_engine(entry)
    except TextError as error:
        return Finding("engine", entry.name, "problem", str(error))
    try:
        return Finding("engine", entry.name, "ok", f"{engine.info}, {engine.info.threads} thread(s): {engine.info.why}")
    finally:
        engine.close()


def _torch() -> Finding:
    if find_spec("torch") is None:
        return Finding("engine", "origin (torch)", "missing", "an origin needs it: pip install 'nearsay[origin]'")
    try:
        probe = subprocess.run(
            [sys.executable, "-c", TORCH_PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
        found = json.loads(probe.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        return Finding("engine", "origin (torch)", "problem", f"torch doesn't work: {type(error).__name__}")
    where = ", ".join(found["cuda"]) or f"cpu, {found['threads']} threads: no CUDA device is visible to torch"
    return Finding("engine", "origin (torch)", "ok", f"torch {found['version']} on {where}")


def _ports() -> Iterator[Finding]:
    for service, ports in DEFAULTS.items():
        for door, port in (("port", ports.port), ("admin", ports.admin_port)):
            state = "in use: by Nearsay, or choose others with --port" if in_use(port) else "free"
            yield Finding("port", f"{port} ({service} {door})", "info", state)
