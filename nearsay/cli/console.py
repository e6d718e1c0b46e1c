"""Where the command line writes, and how it fails.

Results go to stdout, everything else (progress, drafts, notes, errors) to stderr, so that output can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from nearsay.wire.errors import InvalidRequest, NearsayError, title

EXIT_FAILED = 1
EXIT_USAGE = 2

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def note(message: str) -> None:
    """A line for people, on stderr."""
    err.print(message, markup=False, soft_wrap=True)


def write(text: str) -> None:
    """Result text, exactly: no newline added or translated, UTF-8 whatever the locale."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def fail(message: str, code: int = EXIT_FAILED) -> typer.Exit:
    """Say what went wrong; raise what this returns."""
    err.print(f"error: {message}", style="red", markup=False, soft_wrap=True)
    return typer.Exit(code)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Our errors become a line on stderr and an exit status: 2 for a wrong request, 1 for all else."""
    try:
        yield
    except NearsayError as error:
        detail = f": {error.detail}" if error.detail else ""
        code = EXIT_USAGE if isinstance(error, InvalidRequest) else EXIT_FAILED
        raise fail(f"{title(error)} ({error.code}){detail}", code) from None
