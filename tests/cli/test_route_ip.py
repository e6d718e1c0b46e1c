"""`nearsay route explain --ip`: the country that the proxy would see, and the regions that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nearsay.cli.main import app
from tests.proxy.test_location import write

ROUTING = """
default_region = "us"
residency = { DE = ["eu"] }
[regions.eu]
edges = ["ws://eu/link"]
location = [50.1, 8.7]
[regions.us]
edges = ["ws://us/link"]
location = [38.9, -77.5]
"""


def explain(folder: Path, *arguments: str) -> Result:
    (folder / "routing.toml").write_text(ROUTING)
    write(folder / "geo.mmdb", {"20.0.0.0/8": {"country_code": "DE"}, "21.0.0.0/8": {"country_code": "US"}}, "country")
    return CliRunner().invoke(app, ["route", "explain", "--config", str(folder / "routing.toml"), "--json", *arguments])


@pytest.mark.parametrize(("ip", "region"), [("20.1.2.3", "eu"), ("21.1.2.3", "us"), ("9.9.9.9", "us")])
def test_residency_by_address(tmp_path: Path, ip: str, region: str) -> None:
    result = explain(tmp_path, "--ip", ip, "--geoip", str(tmp_path / "geo.mmdb"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["region"] == region
    assert ip in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--ip", "nonsense"], 2, "no address"),
        (["--ip", "20.1.2.3"], 2, "needs --geoip"),
        (["--ip", "20.1.2.3", "--geoip", "/nowhere.mmdb"], 1, "can't be used"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, arguments: list[str], code: int, why: str) -> None:
    result = explain(tmp_path, *arguments)
    assert result.exit_code == code and why in result.output
