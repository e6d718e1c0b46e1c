"""One service as a child process: started, heard until it says that it is ready, kept, asked to drain.

A service prints one line of JSON when it is ready. Children get a process group of their own: Ctrl-C reaches only us,
and we stop them in order. Their stdin is a pipe that we never write to: it ends when we do, even by SIGKILL, and
with it the services (`stop_with_stdin`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress

import msgspec

from nearsay.runtime.tasks import Tasks

TAIL_LINES = 15
LINE_BYTES_MAX = 2_000
CHUNK_BYTES = 64 << 10


class Ready(msgspec.Struct, frozen=True):
    """The line a service prints once it answers."""

    service: str
    port: int
    admin_port: int


class ChildFailed(Exception):
    """A child ended, or wasn't ready in time (`returncode` None). `tail` is the end of what it wrote to stderr."""

    def __init__(self, name: str, returncode: int | None, tail: Sequence[str]) -> None:
        self.name = name
        self.returncode = returncode
        self.tail = tuple(tail)
        how = "was not ready in time" if returncode is None else f"ended with status {returncode}"
        super().__init__("\n".join([f"{name} {how}", *(f"  {line}" for line in self.tail)]))


class Child:
    """A child process, which may be started again after it ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        tasks: Tasks,
        *,
        hidden: Collection[str] = (),
        log: Callable[[str], None] | None = None,
        fds: Sequence[int] = (),
        environment: Mapping[str, str] = {},
    ) -> None:
        """`hidden`: environment variables that the child doesn't get. `fds`: files of ours that it gets, by number."""
        self.name = name
        self.ready: Ready | None = None
        self._command = tuple(command)
        self._hidden = frozenset(hidden)
        self._fds = tuple(fds)
        self._environment = dict(environment)
        self._tasks = tasks
        self._log = log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the last start."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether it was started and hasn't ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, timeout_s: float) -> Ready:
        """Start, and wait for the ready line. Raises ChildFailed; then nothing is left running."""
        self.ready = None
        self._tail.clear()
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
            pass_fds=self._fds,
            env={name: value for name, value in os.environ.items() if name not in self._hidden} | self._environment,
        )
        assert process.stdout is not None and process.stderr is not None
        said_ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._errors = self._tasks.spawn(self._read_errors(process.stderr), name=f"{self.name} stderr")
        self._tasks.spawn(self._read_output(process.stdout, said_ready), name=f"{self.name} stdout")
        try:
            async with asyncio.timeout(timeout_s):
                self.ready = await said_ready
        except (TimeoutError, EOFError) as error:
            returncode = None if isinstance(error, TimeoutError) else await self.wait()
            await self.stop(0)
            raise ChildFailed(self.name, returncode, self._tail) from None
        except asyncio.CancelledError:
            await self.stop(0)
            raise
        return self.ready

    async def wait(self) -> int:
        """Wait for the end; the exit status, negative for a signal."""
        assert self._process is not None
        returncode = await self._process.wait()
        await asyncio.wait([self._errors], timeout=1.0)  # a grandchild may hold the pipe open
        return returncode

    def failure(self) -> ChildFailed:
        """The error that says how an ended child ended."""
        return ChildFailed(self.name, self._process.returncode if self._process else None, self._tail)

    async def stop(self, drain_s: float) -> int | None:
        """SIGTERM, `drain_s` to finish, then SIGKILL. Returns the exit status, None if it never ran."""
        if self._process is None:
            return None
        if drain_s > 0:
            self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(drain_s):
                return await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self._process is not None and self.running:
            with suppress(ProcessLookupError):  # it has just ended
                self._process.send_signal(number)

    async def _read_output(self, lines: asyncio.StreamReader, said_ready: asyncio.Future[Ready]) -> None:
        async for line in _lines(lines):
            if not said_ready.done() and (ready := _ready_of(line)) is not None:
                said_ready.set_result(ready)
        if not said_ready.done():
            said_ready.set_exception(EOFError())

    async def _read_errors(self, lines: asyncio.StreamReader) -> None:
        async for line in _lines(lines):
            self._tail.append(line)
            if self._log is not None:
                self._log(f"{self.name}: {line}")


def _ready_of(line: str) -> Ready | None:
    try:
        state = json.loads(line)
        return msgspec.convert(state, Ready) if state.get("state") == "ready" else None
    except (ValueError, AttributeError):  # msgspec.ValidationError is a ValueError
        return None


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines without their ends, cut at LINE_BYTES_MAX."""
    started = b""
    while chunk := await stream.read(CHUNK_BYTES):
        *lines, started = (started + chunk).split(b"\n")
        started = started[:LINE_BYTES_MAX]
        for line in lines:
            yield line[:LINE_BYTES_MAX].decode(errors="replace").rstrip()
    if started:
        yield started.decode(errors="replace").rstrip()
