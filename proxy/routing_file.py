"""The file of the routing config: read at the start, watched, taken over whole when it is good, kept out when it isn't.

Invariants: what is in force was free of problems; a bad file is counted and logged once a change, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from nearsay.runtime.config import ConfigError
from nearsay.runtime.metrics import Metrics
from proxy.core.routing_check import BYTES_MAX, Mistakes, Routing, read

WATCH_S = 1.0

_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


def load(path: Path) -> Routing:
    """The routing config in a file. Raises ConfigError with all that is wrong with it."""
    try:
        with path.open("rb") as file:
            return read(file.read(BYTES_MAX + 1).decode())
    except OSError as error:
        raise ConfigError([f"{path.name}: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path.name}: is not UTF-8 (byte {error.start})"]) from None
    except Mistakes as mistakes:
        raise ConfigError([f"{path.name} {problem}" for problem in mistakes.problems]) from None


class RoutingFile:
    """Hands each good config to `apply`. `problems` are those of the file as it is now; none = it is in force."""

    def __init__(self, path: Path, apply: Callable[[Routing], Awaitable[None]], metrics: Metrics) -> None:
        """Raises ConfigError."""
        self.path = path
        self.problems: list[str] = []
        self._stamp = _stamp(path)  # before it is read: what changes meanwhile is seen later
        self.routing = load(path)
        self._apply = apply
        self._metrics = metrics
        self._seen = self._stamp
        self._loading = asyncio.Lock()

    async def watch(self) -> None:
        """Look every second, for ever."""
        while True:
            await asyncio.sleep(WATCH_S)
            await self.look()

    async def look(self) -> None:
        """Reload when the file has changed and then stayed the same from one look to the next: not half written."""
        stamp = _stamp(self.path)
        settled, self._seen = stamp == self._seen, stamp
        if settled and stamp != self._stamp:
            await self.reload()

    async def reload(self) -> None:
        """Take over what the file says now; the last good config stays when it has problems."""
        async with self._loading:
            self._stamp = _stamp(self.path)
            try:
                routing = load(self.path)
            except ConfigError as error:
                self._metrics.count("routing_errors")
                if error.problems != self.problems:
                    _log.error("routing stays at %s: %s", self.routing.label, "; ".join(error.problems))
                self.problems = error.problems
                return
            self.problems = []
            if routing == self.routing:
                return
            await self._apply(routing)
            _log.info("routing is %s now, it was %s", routing.label, self.routing.label)
            self.routing = routing


def _stamp(path: Path) -> _Stamp:
    """Changes when the file does, also when another one takes its name."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
