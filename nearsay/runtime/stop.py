"""How a process is told to stop: by a signal, or by the end of whoever started it."""

from __future__ import annotations

import asyncio
import signal
import sys

_STDIN_BYTES = 4096


class Stop:
    """Asked once: drain. Asked twice: don't wait for the drain."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        """Signal handler."""
        (self.hurried if self.asked.is_set() else self.asked).set()


def stop_on_signals() -> Stop:
    """Asked by SIGTERM and SIGINT."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    return stop


async def stop_with_stdin(stop: Stop) -> None:
    """Ask for the stop when whoever started us is gone, however it went: its end of our stdin closed with it."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(_STDIN_BYTES):
        pass  # nothing is said there
    stop.ask()
