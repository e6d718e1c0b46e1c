"""`python -m edge_worker --config FILE --set key=value`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from edge_worker.app import main
from nearsay.runtime.config import ConfigError


def run(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m edge_worker", description="Run a Nearsay edge worker: text in, text out."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one config field")
    options = parser.parse_args(arguments)
    pairs = [item.partition("=") for item in options.set]
    if bad := [key for key, equals, _ in pairs if not equals]:
        parser.error(f"--set {bad[0]}: expected KEY=VALUE")
    try:
        return main(options.config, {key: value for key, _, value in pairs})
    except ConfigError as error:
        for problem in error.problems:
            print(f"edge: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
