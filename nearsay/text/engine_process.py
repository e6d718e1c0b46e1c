"""The other end of `process.py`: `python -m nearsay.text.engine_process` opens one engine and serves its pipe.

Ends with the pipe, and with nothing else: a Ctrl-C or a stop that reaches the whole process group is for the edge
worker, which still drains and needs its engines meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import msgspec

from nearsay.text.engine import LocalEngine, LocalInput
from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.process import entry_of, read_frame, write_frame


def main() -> None:
    """Serve until the pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whatever native code prints must not get between the frames.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions = sys.stdin.buffer
    try:
        engine = _open(read_frame(questions), answers)
        while engine is not None:
            batch = msgspec.convert(read_frame(questions), list[tuple[str, tuple[int, ...]]])
            write_frame(answers, engine.translate([LocalInput(text, ids) for text, ids in batch]))
    except (EOFError, BrokenPipeError):
        pass  # the edge worker has closed or ended


def _open(opening: Any, answers: Any) -> LocalEngine | None:
    """The engine; None when it can't be had, and why has been written."""
    plain, device = opening
    try:
        from nearsay.text.fx import FxEngine

        engine = FxEngine(entry_of(plain), device=device)
    except ImportError as error:
        write_frame(answers, ["unavailable", plain["engine"], f"can't be imported: {error}", "edge"])
        return None
    except ModelError as error:
        write_frame(answers, ["model", str(error.path), error.reason])
        return None
    except EngineUnavailable as error:
        write_frame(answers, ["unavailable", error.engine, error.reason, error.extra])
        return None
    write_frame(answers, ["open", engine.info, engine.batch_max])
    return engine


if __name__ == "__main__":
    main()
