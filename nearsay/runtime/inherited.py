"""What a worker process gets from its parent (workers.py): open files by number, and which of the processes it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

ENVIRONMENT = "NEARSAY_WORKER"


class Inherited(msgspec.Struct, frozen=True):
    """Travels in the environment, as JSON."""

    doors: tuple[int, ...]  # listening sockets of the service port; the parent keeps them too
    report: int  # memory to write what was measured to, at the end
    row: int  # of `rows`: no other process that is alive has it
    rows: int
    memory: int  # shared by all processes of the service

    def environment(self) -> dict[str, str]:
        """What to start the process with."""
        return {ENVIRONMENT: msgspec.json.encode(self).decode()}

    def sockets(self) -> Sequence[socket.socket]:
        """The listening sockets."""
        return [socket.socket(fileno=number) for number in self.doors]


def inherited() -> Inherited | None:
    """What this process was given, None when it was started by itself. Our own children don't get it."""
    text = os.environ.pop(ENVIRONMENT, None)
    return None if text is None else msgspec.json.decode(text, type=Inherited)
