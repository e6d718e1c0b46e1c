"""What can go wrong with models and engines on this machine; none of it crosses a process boundary as it is.

TextError
├── ModelError          a model's files are missing, damaged or not what its model.toml says
├── EngineUnavailable   the model is fine, but this machine can't run it: an extra or a device is missing
├── EngineDied          the process of an engine ended under a batch
└── WrongThread         an engine was called from another thread than the one that opened it
"""

from __future__ import annotations

from pathlib import Path


class TextError(Exception):
    """Base of the errors of this room."""


class ModelError(TextError):
    """`path` names the file or folder at fault, `reason` says what is wrong with it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class EngineUnavailable(TextError):
    """`engine` can't run here; `extra` is the extra of this package that would help, or empty."""

    def __init__(self, engine: str, reason: str, *, extra: str = "") -> None:
        self.engine = engine
        self.reason = reason
        self.extra = extra
        hint = f" (pip install 'nearsay[{extra}]')" if extra else ""
        super().__init__(f"{engine}: {reason}{hint}")


class EngineDied(TextError):
    """`engine`'s process ended by itself; `returncode` as of `subprocess` (negative: a signal)."""

    def __init__(self, engine: str, returncode: int | None) -> None:
        self.engine = engine
        self.returncode = returncode
        super().__init__(f"{engine}: its process ended with {returncode}")


class WrongThread(TextError):
    """`engine` belongs to the thread that opened it."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        super().__init__(f"{engine}: called from another thread than the one that opened it")
