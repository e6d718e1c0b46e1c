from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nearsay.runtime.child import LINE_BYTES_MAX, Child, ChildFailed, Ready
from nearsay.runtime.tasks import Tasks

SERVICE = str(Path(__file__).parent.parent / "kit" / "fake_service.py")


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


def child(tasks: Tasks, behaviour: str, log: list[str] | None = None, hidden: tuple[str, ...] = ()) -> Child:
    keep = None if log is None else log.append
    return Child("edge", (sys.executable, SERVICE, "edge", behaviour), tasks, hidden=hidden, log=keep)


async def test_ready_then_drained(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECRET", "seen")
    log: list[str] = []
    edge = child(tasks, "ready", log)
    assert await edge.start(10) == Ready("edge", 1234, 1235)
    assert await edge.stop(10) == 0
    assert log == ["edge: edge starts, secret=seen", "edge: edge drained"]


async def test_hidden_environment(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECRET", "seen")
    log: list[str] = []
    edge = child(tasks, "ready", log, hidden=("FAKE_SECRET",))
    await edge.start(10)
    await edge.stop(10)
    assert log[0] == "edge: edge starts, secret=hidden"


async def test_death_before_ready_tells_why(tasks: Tasks) -> None:
    with pytest.raises(ChildFailed) as failure:
        await child(tasks, "dies").start(10)
    assert failure.value.returncode == 3
    assert str(failure.value) == "edge ended with status 3\n  edge starts, secret=hidden\n  edge: no such model"


async def test_not_ready_in_time_is_ended(tasks: Tasks) -> None:
    mute = child(tasks, "mute")
    with pytest.raises(ChildFailed) as failure:
        await mute.start(0.3)
    assert failure.value.returncode is None
    assert mute.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(mute.pid, 0)


async def test_stubborn_child_is_killed(tasks: Tasks) -> None:
    stubborn = child(tasks, "stubborn")
    await stubborn.start(10)
    assert await stubborn.stop(0.2) == -signal.SIGKILL


async def test_cancelled_start_leaves_nothing(tasks: Tasks) -> None:
    mute = child(tasks, "mute")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await mute.start(10)
    assert mute.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(mute.pid, 0)


async def test_death_later_with_an_endless_line(tasks: Tasks) -> None:
    crashes = child(tasks, "crashes")
    await crashes.start(10)
    async with asyncio.timeout(10):
        assert await crashes.wait() == 4
    assert str(crashes.failure()) == f"edge ended with status 4\n  edge starts, secret=hidden\n  {'x' * LINE_BYTES_MAX}"
    assert await crashes.stop(1) == 4


async def test_started_again(tasks: Tasks) -> None:
    edge = child(tasks, "ready")
    await edge.start(10)
    first = edge.pid
    edge.signal(signal.SIGKILL)
    assert await edge.wait() == -signal.SIGKILL
    await edge.start(10)
    assert edge.pid != first
    assert await edge.stop(10) == 0


async def test_never_started(tasks: Tasks) -> None:
    assert await child(tasks, "ready").stop(1) is None
