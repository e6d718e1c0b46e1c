"""`nearsay proxy|edge|origin`: become that service. Services live in a checkout or an image, not in the wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from nearsay.cli.console import EXIT_USAGE, fail
from nearsay.cli.stack import MODULES


def become(service: str, config: Path | None, overrides: Sequence[str]) -> NoReturn:
    """Replace this process by the service, so that signals and exit status are its own."""
    module = MODULES[service]
    require_services((service,))
    command = [sys.executable, "-m", module]
    if config is not None:
        command += ["--config", str(config)]
    for override in overrides:
        command += ["--set", override]
    sys.stdout.flush()
    os.execv(sys.executable, command)


def require_services(services: Sequence[str]) -> None:
    """Raises typer.Exit, with what to do, when a service's code isn't installed here."""
    missing = [service for service in services if find_spec(MODULES[service]) is None]
    if missing:
        raise fail(
            f"{', '.join(missing)} can't be run from the installed package, which holds only the SDK and this command: "
            "clone the repository and `pip install -e .` in it, or use the images in infra/",
            EXIT_USAGE,
        )
