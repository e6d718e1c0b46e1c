"""The wheel holds the library alone: who installs the SDK must not get modules called `proxy` or `origin`."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# -S leaves .pth files alone, so the checkout's editable install is not seen; dependencies come by path.
PROBE = """
import sys
sys.path[:0] = sys.argv[1:]
import nearsay
from nearsay import AsyncClient, Client
assert nearsay.__file__.startswith(sys.argv[1]), nearsay.__file__
for name in ("proxy", "edge_worker", "origin", "bench", "tests"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"the wheel brings a module called {name}")
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=ROOT, timeout=100, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_gives_the_sdk_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    paths = [str(tmp_path), sysconfig.get_path("purelib")]
    subprocess.run([sys.executable, "-I", "-S", "-c", PROBE, *paths], check=True, cwd=tmp_path, timeout=60)


def test_the_base_install_is_light(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
    base = {
        re.split(r"[<>=]", line.split()[1])[0]
        for line in lines
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    }
    assert base == {"aiohttp", "msgpack", "msgspec", "orjson", "rich", "typer"}
