"""The example configs load, say what the code's defaults say, and name only keys that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_worker.config import EdgeConfig
from nearsay.runtime.config import ServiceConfig, load_config
from origin.config import OriginConfig
from proxy.config import ProxyConfig

FOLDER = Path(__file__).resolve().parent.parent / "infra" / "config"


@pytest.mark.parametrize(
    ("name", "kind", "chosen"),
    [
        ("proxy", ProxyConfig, {}),
        ("edge", EdgeConfig, {"origins": ("ws://127.0.0.1:8120/link",)}),
        ("origin", OriginConfig, {}),
    ],
)
def test_an_example_is_the_default_written_out(name: str, kind: type[ServiceConfig], chosen: dict[str, object]) -> None:
    assert load_config(FOLDER / f"{name}.toml", kind, {}) == load_config(None, kind, chosen)
