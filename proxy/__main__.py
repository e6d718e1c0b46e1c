"""`python -m proxy --config FILE [--set key=value ...]`: run one proxy until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nearsay.runtime.config import ConfigError
from proxy.app import main


def arguments(argv: list[str]) -> argparse.Namespace:
    """Command line of a proxy process."""
    parser = argparse.ArgumentParser(prog="python -m proxy", description="The client-facing door of Nearsay.")
    parser.add_argument("--config", type=Path, help="TOML file; without one, the defaults")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="set one key, also a nested one: request.texts_max=10",
    )
    return parser.parse_args(argv)


def run(argv: list[str]) -> int:
    """Exit status of the process."""
    options = arguments(argv)
    bad = [entry for entry in options.overrides if "=" not in entry]
    if bad:
        print(f"proxy: --set needs KEY=VALUE, not {bad[0]!r}", file=sys.stderr)
        return 2
    try:
        return main(options.config, dict(entry.split("=", 1) for entry in options.overrides))
    except ConfigError as error:
        for problem in error.problems:
            print(f"proxy: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
