"""Which arguments are files, what is in them, and where translations of them go: byte for byte but for the words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TextIO

from nearsay.cli.console import write

NAME_BYTES_MAX = 255  # longer arguments can't be file names


def files_of(arguments: Sequence[str]) -> list[Path]:
    """The arguments as files; none when they are text. Raises ValueError for a mixture."""
    are_files = [len(argument.encode()) <= NAME_BYTES_MAX and Path(argument).is_file() for argument in arguments]
    if any(are_files) and not all(are_files):
        missing = arguments[are_files.index(False)]
        raise ValueError(f"{missing!r} is not a file, though other arguments are")
    return [Path(argument) for argument in arguments] if any(are_files) else []


def read_text(path: Path | None) -> str:
    """A file's text, None for stdin; line ends as they are. Raises OSError, and ValueError when it isn't UTF-8."""
    data = sys.stdin.buffer.read() if path is None else path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path or 'stdin'} is not UTF-8 (byte {error.start})") from None


class Outputs:
    """Where each source's translation goes: stdout, one file, or a file a source in a folder. A context manager."""

    def __init__(self, targets: dict[Path | None, Path]) -> None:
        self._targets = targets
        self._open = ExitStack()
        self._files: dict[Path, TextIO] = {}

    @classmethod
    def choose(cls, sources: Sequence[Path], output: Path | None) -> Outputs:
        """Raises ValueError for an output that would overwrite a source, or take several files' translations."""
        if output is None:
            return cls({})
        into_folder = output.is_dir() or len(sources) > 1
        if into_folder and not output.is_dir():
            raise ValueError(f"{output} is not a folder, and there are several files")
        if into_folder and not sources:
            raise ValueError(f"{output} is a folder: name a file in it")
        targets: dict[Path | None, Path] = {
            source: output / source.name if into_folder else output for source in sources
        }
        targets = targets or {None: output}
        if len(set(targets.values())) < len(targets):
            raise ValueError("two files of one name can't go into one folder")
        if any(source is not None and target.resolve() == source.resolve() for source, target in targets.items()):
            raise ValueError("a translation would overwrite its source")
        return cls(targets)

    def emit_to(self, source: Path | None) -> Callable[[str], object]:
        """What writes pieces of this source's translation."""
        target = self._targets.get(source)
        if target is None:
            return write
        if target not in self._files:
            self._files[target] = self._open.enter_context(target.open("w", encoding="utf-8", newline=""))
        return self._files[target].write

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
