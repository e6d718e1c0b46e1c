"""`python -m bench run CASE...` measures and writes results; `python -m bench check` judges the committed ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from bench.check import REQUIRED, check


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "check" and not rest:
        return _check()
    if command == "run":
        return _run(rest)
    print(f"{__doc__}\ncases: {', '.join(REQUIRED)}; options of one: python -m bench run CASE --help", file=sys.stderr)
    return 2


def _check() -> int:
    verdicts = list(check())
    for verdict in verdicts:
        print(f"{'ok  ' if verdict.ok else 'FAIL'} {verdict.case}: {verdict.detail}")
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _run(arguments: Sequence[str]) -> int:
    """Each case brings `add_options(parser)` and `main(options) -> path`; options of one name are one option."""
    parser = argparse.ArgumentParser(prog="python -m bench run", conflict_handler="resolve")
    parser.add_argument("cases", nargs="+", choices=tuple(REQUIRED), metavar="CASE", help=", ".join(REQUIRED))
    cases = {name: import_module(f"bench.{name}") for name in arguments if name in REQUIRED}
    for case in cases.values():
        case.add_options(parser)
    options = parser.parse_args(arguments)
    for case in cases.values():
        print(f"wrote {case.main(options).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
