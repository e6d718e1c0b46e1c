from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nearsay.cli import restarts as restarts_module
from nearsay.cli.supervisor import Supervisor
from nearsay.runtime.child import ChildFailed, Ready
from nearsay.runtime.tasks import Tasks

SERVICE = str(Path(__file__).parent.parent / "kit" / "fake_service.py")


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


def supervisor(tasks: Tasks, said: asyncio.Queue[str], log: list[str] | None = None, **behaviours: str) -> Supervisor:
    commands = {name: (sys.executable, SERVICE, name, behaviour) for name, behaviour in behaviours.items()}
    keep = None if log is None else log.append
    return Supervisor(commands, tasks=tasks, say=said.put_nowait, log=keep, drain_timeout_s=10)


async def test_started_together_drained_in_order(tasks: Tasks) -> None:
    said, log, ready = asyncio.Queue[str](), list[str](), list[Ready]()
    services = supervisor(tasks, said, log, origin="ready", edge="ready", proxy="ready")
    await services.start(ready.append)
    await services.stop()
    assert sorted(r.service for r in ready) == ["edge", "origin", "proxy"]
    assert [line for line in log if "drained" in line] == [
        f"{name}: {name} drained" for name in ("proxy", "edge", "origin")
    ]
    assert said.empty()


async def test_one_that_dies_at_the_start_fails_the_start(tasks: Tasks) -> None:
    services = supervisor(tasks, asyncio.Queue(), origin="ready", edge="dies")
    with pytest.raises(ChildFailed) as failure:
        await services.start()
    assert failure.value.name == "edge"
    await services.stop()


async def test_a_killed_service_comes_back_and_is_spoken_of(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts_module, "BACKOFF_FIRST_S", 0.01)
    said = asyncio.Queue[str]()
    services = supervisor(tasks, said, origin="ready", edge="ready")
    await services.start()
    watching = tasks.spawn(services.watch(), name="watch")
    services.children["edge"].signal(signal.SIGKILL)
    async with asyncio.timeout(10):
        assert "edge ended with status -9" in (first := await said.get())
        assert "starting edge again in 0.01 s (restart 1)" in first
        assert await said.get() == "edge is ready again"
    assert (services.restarts["edge"].count, services.restarts["origin"].count) == (1, 0)
    watching.cancel()
    await asyncio.wait([watching])
    await services.stop()


async def test_one_that_keeps_dying_is_given_up(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts_module, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(restarts_module, "RESTARTS_MAX", 2)
    said = asyncio.Queue[str]()
    services = supervisor(tasks, said, edge="crashes")
    await services.start()
    async with asyncio.timeout(20):
        failure = await services.watch()
    assert failure.returncode == 4
    assert services.restarts["edge"].count == 2
    await services.stop()


async def test_kill(tasks: Tasks) -> None:
    said = asyncio.Queue[str]()
    services = supervisor(tasks, said, edge="stubborn")
    await services.start()
    stopping = tasks.spawn(services.stop(), name="stop")
    services.kill()
    async with asyncio.timeout(5):
        await stopping
    assert said.get_nowait() == "edge ended with status -9"
