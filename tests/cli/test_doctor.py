from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsay.cli import doctor
from nearsay.cli.doctor import Finding, examine, findings_table, requirements
from nearsay.cli.main import app
from nearsay.text.registry import Registry


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without models, and with a torch that says where it is."""
    monkeypatch.setattr(
        Registry, "discover", classmethod(lambda cls, roots: cls((), [f"{r}: no such folder" for r in roots]))
    )

    def probe(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, '{"version": "2.13.0", "threads": 2, "cuda": []}\n', "")

    monkeypatch.setattr(doctor.subprocess, "run", probe)
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())


def by_name(findings: Sequence[Finding]) -> dict[tuple[str, str], Finding]:
    return {(finding.area, finding.name): finding for finding in findings}


@pytest.mark.usefixtures("bare")
def test_what_it_looks_at() -> None:
    found = by_name(list(examine()))
    assert found["system", "python"].status == "ok"
    assert found["package", "aiohttp"].detail.endswith("for the SDK and this command")
    assert found["service", "proxy"].status == "ok"
    assert found["model", "none"].status == "missing"
    assert "no CUDA device" in found["engine", "origin (torch)"].detail
    assert found["port", "8100 (proxy port)"].status == "info"


@pytest.mark.usefixtures("bare")
def test_json_and_exit_status() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    assert {finding["area"] for finding in json.loads(result.stdout)} >= {"system", "package", "model", "port"}
    result = CliRunner().invoke(app, ["doctor", "--models", "nowhere"])
    assert result.exit_code == 1
    assert "nowhere: no such folder" in result.stdout


def test_without_torch_and_services(monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    found = by_name(list(examine()))
    assert found["engine", "origin (torch)"].status == "missing"
    assert found["service", "origin"].status == "missing"


def test_torch_that_does_not_work(monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    def crash(command: Sequence[str], **_: object) -> None:
        raise subprocess.CalledProcessError(-11, command)

    monkeypatch.setattr(doctor.subprocess, "run", crash)
    assert by_name(list(examine()))["engine", "origin (torch)"].status == "problem"


def test_a_damaged_model_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "en-xx"
    folder.mkdir()
    (folder / "model.toml").write_text("source = 3")
    findings = list(doctor._models(Registry.discover([tmp_path], defaults=False)))
    assert [finding.status for finding in findings] == ["problem", "missing"]


def test_requirements() -> None:
    lines = [
        "aiohttp<4,>=3.11",
        "Torch==2.13.0; extra == 'origin'",
        "torch; extra == 'distill'",
        "pytest; extra == 'test'",
    ]
    assert requirements(lines) == {"aiohttp": [], "torch": ["origin", "distill"]}


def test_table_shows_an_area_once_and_text_as_it_is() -> None:
    table = findings_table([Finding("package", "a", "ok", "x[edge]"), Finding("package", "b", "missing", "y")])
    assert list(table.columns[0].cells) == ["package", ""]
    assert [str(cell) for cell in table.columns[3].cells] == ["x[edge]", "y"]
