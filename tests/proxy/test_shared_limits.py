"""Limits that hold for several real processes, and for several hosts through a real Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nearsay.runtime.config import ConfigError, redacted
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import RateLimited
from proxy import shared_limits
from proxy.config import ProxyConfig
from proxy.core.ledger import Field
from proxy.core.quota import Quotas
from proxy.core.routing_config import Tenant
from proxy.shared_limits import BOARD, Memory, RedisBoard, SharedLimits

WITHIN_S = 20.0
ROOT = Path(__file__).resolve().parent.parent.parent
REDIS = shutil.which("redis-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
# CI installs it (.ci/run), so there its absence is a fault; a developer's machine may lack it, and is told.
needs_redis = pytest.mark.skipif(
    REDIS is None and not os.environ.get("CI"),
    reason="redis-server is not installed (Debian: apt-get install redis-server)",
)
TENANT = Tenant(requests_per_s=0.001, burst_s=50_000.0, concurrency_max=0)  # 50 at once, then nothing for long
# One process: for a line from us it takes what it gets, and says how much that was.
PROCESS = """
import sys, time
from nearsay.wire.errors import RateLimited
from proxy.core.quota import Quotas
from proxy.core.routing_config import Tenant
from proxy.shared_limits import Memory

file, processes, row, tries = map(int, sys.argv[1:])
ledger = Memory(processes, file).ledger(row)
print("ready", flush=True)
sys.stdin.readline()
quotas = Quotas({"a": Tenant(requests_per_s=0.001, burst_s=50_000.0)}, ledger)
taken = 0
for _ in range(tries):
    try:
        quotas.admit("a", "interactive", 1, time.monotonic()).end()
        taken += 1
    except RateLimited:
        pass
print(taken, flush=True)
sys.stdin.readline()
"""


def start(memory: Memory, row: int, tries: int) -> subprocess.Popen[str]:
    arguments = [str(number) for number in (memory.file, memory.rows - 1, row, tries)]
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(memory.file,),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_limit_holds_for_processes_that_all_take_what_they_can() -> None:
    """The bound that quota.py states: one request a process more than the limit, however they race."""
    count = 3
    memory = Memory(count)
    processes = [start(memory, row, 3000) for row in range(count)]
    try:
        assert [line(process) for process in processes] == ["ready"] * count
        for process in processes:
            go(process)
        taken = [int(line(process)) for process in processes]
        assert 50 <= sum(taken) <= 50 + count - 1, taken
        ledger = memory.ledger(count)
        assert ledger.slot("a").total(Field.REQUESTS) == sum(taken)
        assert len(ledger.shared()) == 1, "the name has one slot, though all asked for it at once"
    finally:
        for process in processes:
            process.communicate("\n", timeout=WITHIN_S)


def test_what_a_killed_process_had_in_flight_is_given_back() -> None:
    limits = SharedLimits(2, None, clock=time.monotonic)
    mine = Quotas({"a": Tenant(concurrency_max=2)}, limits.own.ledger(0))
    theirs = limits.own.ledger(1).slot("a")
    theirs.add(Field.IN_FLIGHT, 2.0)
    with pytest.raises(RateLimited):
        mine.admit("a", "interactive", 1, 1.0)
    limits.left(1)
    mine.admit("a", "interactive", 1, 1.0)


def test_the_lock_of_a_killed_process_is_let_go() -> None:
    memory = Memory(1)
    code = "import sys, time; from proxy.shared_limits import FileLock; FileLock(int(sys.argv[1])).__enter__(); "
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print('held', flush=True); time.sleep(60)", str(memory.file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(memory.file,),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert line(holder) == "held"
    holder.kill()
    holder.wait(WITHIN_S)
    memory.ledger(0).slot("a").add(Field.CHARS, 1.0)


# ---- Redis -----------------------------------------------------------------------------------------------------------


class Redis:
    """A redis-server of our own, on a socket in a folder: no port to be taken, nothing kept."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"

    def start(self) -> None:
        assert REDIS is not None, "redis-server is missing: .ci/run installs it"
        options = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([REDIS, *options, "--dir", str(self._folder)], stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(WITHIN_S)
            self.process = None


@asynccontextmanager
async def hosts(redis: Redis, count: int, tenant: Tenant) -> AsyncIterator[list[tuple[Quotas, Metrics]]]:
    """Hosts of one process each, which share limits while Redis is there."""
    tasks, made = Tasks(), []
    for _ in range(count):
        limits = SharedLimits(1, RedisBoard(redis.url), clock=time.monotonic)
        metrics = Metrics("proxy")
        tasks.spawn(limits.run(metrics), name="shared limits")
        made.append((Quotas({"a": tenant}, limits.own.ledger(0)), metrics))
    try:
        yield made
    finally:
        await tasks.close()


def exchanges(metrics: Metrics, outcome: str) -> int:
    counters: Mapping[str, float] = metrics.snapshot()["counters"]
    return int(counters.get(f"limits_exchange{{outcome={outcome}}}", 0))


async def until_exchanged(*all_hosts: tuple[Quotas, Metrics], outcome: str = "ok", times: int = 2) -> None:
    """Until every host has said something after now and has heard the others say it."""
    before = [exchanges(metrics, outcome) for _, metrics in all_hosts]
    async with asyncio.timeout(WITHIN_S):
        for (quotas, metrics), count in zip(all_hosts, before, strict=True):
            while exchanges(metrics, outcome) < count + times:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            quotas.look(time.monotonic())


def taken(quotas: Quotas, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            quotas.admit("a", "interactive", 1, time.monotonic()).end()
        except RateLimited:
            break
        count += 1
    return count


@needs_redis
async def test_a_limit_holds_across_hosts_and_without_redis_each_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_limits, "SYNC_S", 0.02)
    monkeypatch.setattr(shared_limits, "RETRY_S", 0.02)
    redis = Redis(tmp_path)
    try:
        redis.start()
        async with hosts(redis, 3, TENANT) as (first, second, third):
            await until_exchanged(first, second, third)
            assert taken(first[0], 30) == 30
            await until_exchanged(first, second, third)
            assert taken(second[0], 100) == 20
            await until_exchanged(first, second, third)
            assert (taken(third[0], 100), taken(first[0], 100)) == (0, 0)
            redis.stop()
            caplog.clear()
            await until_exchanged(first, second, third, outcome="failed")
            assert len([r for r in caplog.records if "Redis does not answer" in r.getMessage()]) == 3, "each host once"
            assert taken(first[0], 100) == 0, "what was known stays known"
            redis.start()
            await until_exchanged(first, second, third)
            assert len([r for r in caplog.records if "Redis answers again" in r.getMessage()]) == 3
            assert taken(second[0], 100) == 0
    finally:
        redis.stop()


async def test_without_redis_from_the_start_the_limits_are_each_hosts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_limits, "RETRY_S", 0.01)
    caplog.set_level(logging.WARNING)
    async with hosts(Redis(tmp_path), 1, TENANT) as [alone]:
        await until_exchanged(alone, outcome="failed", times=3)
        assert taken(alone[0], 100) == 50
    assert len([r for r in caplog.records if "Redis" in r.getMessage()]) == 1


@needs_redis
async def test_a_host_that_went_silently_is_wiped_off_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "SYNC_S", 0.01)
    monkeypatch.setattr("proxy.core.hosts.FORGET_S", 0.05)
    redis = Redis(tmp_path)
    try:
        redis.start()
        board = RedisBoard(redis.url)
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    await board.exchange(b"gone", b"\x92\x01\x80")
                    break
                except OSError:
                    await asyncio.sleep(0.01)
        async with hosts(redis, 1, TENANT) as [alone], asyncio.timeout(WITHIN_S):
            await until_exchanged(alone)
            while b"gone" in await board._redis.hgetall(BOARD):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(await board._redis.hgetall(BOARD)) == 1
        await board.close()
    finally:
        redis.stop()


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:6379"])
def test_a_url_that_is_none_is_told_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="limits_redis") as caught:
        RedisBoard(url)
    assert url not in str(caught.value)


def test_a_password_in_the_url_is_not_shown() -> None:
    assert "s3cret" not in str(redacted(ProxyConfig(limits_redis="redis://:s3cret@10.0.0.1")))
