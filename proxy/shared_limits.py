"""Limits that several processes keep together: memory that those of one host map, and a board in Redis where hosts read
what the others used. What is in the memory: core/ledger.py; on the board: core/hosts.py.

The way of a request never waits for either. Without an answer from Redis each host keeps to the limits by itself.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import mmap
import os
import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from nearsay.runtime.clock import Clock
from nearsay.runtime.config import ConfigError
from nearsay.runtime.inherited import Inherited
from nearsay.runtime.metrics import Metrics
from proxy.core.hosts import SYNC_S, Hosts
from proxy.core.ledger import Ledger, memory_bytes

BOARD = "nearsay:limits"
ANSWER_TIMEOUT_S = 0.5
RETRY_S = 1.0
_log = logging.getLogger(__name__)


class FileLock:
    """Between processes; the kernel lets go of a dead one's."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)


class Memory:
    """A ledger's memory: a row for each process of this host and one, the last, for all other hosts."""

    def __init__(self, processes: int, file: int | None = None) -> None:
        """`file`: one that another process made."""
        self.rows = processes + 1
        size = memory_bytes(self.rows)
        if file is None:
            file = os.memfd_create("nearsay-limits")
            os.ftruncate(file, size)
        self.file = file
        self._view = memoryview(mmap.mmap(file, size))

    @classmethod
    def of(cls, given: Inherited) -> Memory:
        """What a parent made for its processes."""
        return cls(given.rows, given.memory)

    def ledger(self, row: int) -> Ledger:
        """The ledger as the process of `row` sees it, or as the one that keeps the others' row."""
        return Ledger(self._view, rows=self.rows, row=row, lock=FileLock(self.file))


class Board(Protocol):
    """Lines that hosts leave for each other."""

    async def exchange(self, name: bytes, line: bytes) -> Mapping[bytes, bytes]:
        """Leave our line; all lines. Raises OSError."""

    async def wipe(self, names: list[bytes]) -> None:
        """Take lines away. Raises OSError."""

    async def close(self) -> None:
        """Hang up."""


class RedisBoard:
    """One hash in Redis. A client that failed once is given up: the next exchange begins with a new one."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError: no such URL, or the extra `redis` isn't installed."""
        try:
            package = import_module("redis.asyncio")  # in an extra: most proxies are one host
            self._errors: type[Exception] = import_module("redis").RedisError
        except ImportError:
            raise ConfigError(["'limits_redis' needs the extra: pip install 'nearsay[redis]'"]) from None
        self._new = partial(
            package.Redis.from_url,
            url,
            socket_timeout=ANSWER_TIMEOUT_S,
            socket_connect_timeout=ANSWER_TIMEOUT_S,
        )
        try:
            self._redis = self._new()
        except ValueError as error:
            raise ConfigError([f"'limits_redis': {str(error).partition('(')[0].strip()}"]) from None

    async def exchange(self, name: bytes, line: bytes) -> Mapping[bytes, bytes]:
        """See Board."""
        pipe = self._redis.pipeline(transaction=False)
        _, lines = await self._answer(pipe.hset(BOARD, name, line).hgetall(BOARD).execute())
        found: dict[bytes, bytes] = lines
        return found

    async def wipe(self, names: list[bytes]) -> None:
        """See Board."""
        await self._answer(self._redis.hdel(BOARD, *names))

    async def close(self) -> None:
        """See Board."""
        await self._redis.aclose()

    async def _answer(self, asked: Awaitable[Any]) -> Any:
        try:
            return await asked
        except (self._errors, OSError) as error:
            with suppress(self._errors, OSError):
                await self._redis.aclose()
            self._redis = self._new()
            raise OSError(type(error).__name__) from error


class SharedLimits:
    """Of the process that stands for its host: the parent, or the only one."""

    def __init__(self, processes: int, board: Board | None, *, clock: Clock) -> None:
        """`board` None: this host is alone."""
        self.own = Memory(processes)
        self.memory = self.own.file
        self._board = board
        self._clock = clock
        self._name = secrets.token_bytes(8)
        self._ledger = self.own.ledger(processes)
        self._hosts = Hosts(self._ledger, range(processes))
        self._down = False

    def left(self, row: int) -> None:
        """The process of a row has ended."""
        self._ledger.left(row)

    async def run(self, metrics: Metrics) -> None:
        """Keep up with the other hosts."""
        if self._board is None:
            return
        try:
            while True:
                answered = await self._sync(self._board, metrics)
                await asyncio.sleep(SYNC_S if answered else RETRY_S)
        finally:
            await self._board.close()

    async def _sync(self, board: Board, metrics: Metrics) -> bool:
        """One exchange; whether Redis answered."""
        try:
            lines = dict(await board.exchange(self._name, self._hosts.say()))
            lines.pop(self._name, None)
            if dead := self._hosts.hear(lines, self._clock()):
                await board.wipe(dead)
        except OSError as error:  # TimeoutError is one
            self._hosts.hear({}, self._clock())
            metrics.count("limits_exchange", outcome="failed")
            if not self._down:
                _log.warning("Redis does not answer (%s): limits are kept by each host alone", error)
            self._down = True
            return False
        if self._down:
            _log.warning("Redis answers again: limits are shared between hosts")
        self._down = False
        metrics.count("limits_exchange", outcome="ok")
        metrics.gauge("limits_lines_malformed", self._hosts.malformed)
        return True
