"""An engine in a process of its own, for native code that keeps Python's interpreter lock while it runs.

`fxtranslate` does: on a thread it would stop the edge's event loop, and with it every other pair, for the 5 to 20 ms
of each sentence. The pipe costs about 0.1 ms.
Decides: how a batch crosses the pipe, what a dead process costs. Must not know: which engine runs over there.
Invariants: one request is on its way at a time; a process that dies takes its batch with it, the next call starts
another; the process ends when this end of the pipe closes, however this process ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

import msgpack
import msgspec

from nearsay.text.engine import Device, EngineInfo, LocalInput, LocalOutput
from nearsay.text.errors import EngineDied, EngineUnavailable, ModelError
from nearsay.text.registry import ModelEntry

CLOSE_TIMEOUT_S = 5.0
FRAME_BYTES_MAX = 64 << 20
LENGTH_BYTES = 4


class ProcessEngine:
    """`LocalEngine` whose work is done elsewhere. Opening it raises what the engine's own opening raises."""

    def __init__(self, entry: ModelEntry, *, device: Device = "auto") -> None:
        self._engine = entry.engine
        self._opening = [_plain(entry), device]
        self._process: subprocess.Popen[bytes] | None = None
        self.info, self.batch_max = self._start()

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        """See `LocalEngine.translate`. Raises EngineDied when the process went; the next call finds a new one."""
        if self._process is None:
            self._start()
        return msgspec.convert(self._ask([[item.text, item.ids] for item in batch]), list[LocalOutput])

    def close(self) -> None:
        """See `LocalEngine.close`."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already, with bytes unread
            process.stdin.close()
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _start(self) -> tuple[EngineInfo, int]:
        command = [sys.executable, "-m", "nearsay.text.engine_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        kind, *facts = self._ask(self._opening)
        if kind == "open":
            return msgspec.convert(facts[0], EngineInfo), facts[1]
        self.close()
        if kind == "model":
            raise ModelError(*facts)
        raise EngineUnavailable(facts[0], facts[1], extra=facts[2])

    def _ask(self, question: object) -> Any:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            write_frame(self._process.stdin, question)
            return read_frame(self._process.stdout)
        except (BrokenPipeError, EOFError):
            died = self._process
            died.kill()
            self.close()
            raise EngineDied(self._engine, died.returncode) from None


def write_frame(pipe: IO[bytes], value: object) -> None:
    """One value, with its length before it."""
    body: bytes = msgpack.packb(msgspec.to_builtins(value))
    pipe.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> Any:
    """The next value. Raises EOFError at the end of the pipe, also in the middle of a frame."""
    head = pipe.read(LENGTH_BYTES)
    size = int.from_bytes(head, "little")
    body = pipe.read(size) if len(head) == LENGTH_BYTES and size <= FRAME_BYTES_MAX else b""
    if len(head) < LENGTH_BYTES or len(body) < size or size > FRAME_BYTES_MAX:
        raise EOFError
    return msgpack.unpackb(body)


def entry_of(plain: dict[str, Any]) -> ModelEntry:
    """Inverse of what the opening frame does to an entry."""
    return msgspec.convert(plain, ModelEntry, dec_hook=lambda kind, value: kind(value))


def _plain(entry: ModelEntry) -> dict[str, Any]:
    bare = msgspec.structs.replace(entry, sha256={})  # checked on this side, and its keys are paths
    plain: dict[str, Any] = msgspec.to_builtins(bare, enc_hook=str)  # paths
    return plain
