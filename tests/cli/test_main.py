from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from nearsay.cli import main as main_module
from nearsay.cli import services
from nearsay.cli.main import app


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_version_is_the_package_s() -> None:
    assert run("--version") == (0, f"nearsay {metadata.version('nearsay')}\n", "")


def test_help_names_every_command() -> None:
    _, shown, _ = run("--help")
    for name in ("up", "proxy", "edge", "origin", "translate", "stats", "doctor", "load", "distill"):
        assert name in shown


@pytest.mark.parametrize(("service", "module"), [("proxy", "proxy"), ("edge", "edge_worker"), ("origin", "origin")])
def test_service_commands_become_the_service(monkeypatch: pytest.MonkeyPatch, service: str, module: str) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: ran.append(command))
    assert run(service, "--config", "c.toml", "--set", "port=1", "--set", "secret=x")[0] == 0
    assert ran == [
        [sys.executable, "-m", module, "--config", "c.toml", "--set", "port=1", "--set", "secret=x"],
    ]


def test_service_commands_from_the_wheel_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "find_spec", lambda name: None)
    for command in ("proxy", "up"):
        code, _, err = run(command)
        assert code == 2
        assert "clone the repository" in err


def test_distill_hands_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Module:
        @staticmethod
        def app(args: list[str], prog_name: str) -> None:
            calls.append((args, prog_name))

    monkeypatch.setattr(main_module, "import_module", lambda name: Module)
    assert run("distill", "gate", "--help", "-x")[0] == 0
    assert calls == [(["gate", "--help", "-x"], "nearsay distill")]


def test_distill_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name="torch")

    monkeypatch.setattr(main_module, "import_module", missing)
    code, _, err = run("distill")
    assert (code, err) == (2, "error: can't import torch: pip install 'nearsay[distill]'\n")


def test_the_command_imports_no_engine() -> None:
    heavy = ("torch", "ctranslate2", "sentencepiece", "prometheus_client", "numpy")
    code = f"import sys, nearsay.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
