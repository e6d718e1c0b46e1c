from __future__ import annotations

import asyncio
import logging

import pytest

from nearsay.runtime.tasks import Tasks


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_crash_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> None:
        raise ZeroDivisionError

    tasks = Tasks()
    task = tasks.spawn(crash(), name="doomed")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == ["task doomed crashed"]
    assert len(tasks) == 0


async def test_a_result_is_the_tasks() -> None:
    async def seven() -> int:
        return 7

    assert await Tasks().spawn(seven(), name="seven") == 7


async def test_close_cancels_all_and_waits() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append("slow")

    spawned = [tasks.spawn(forever(), name="a"), tasks.spawn(slow_to_end(), name="b")]
    await asyncio.sleep(0)
    await tasks.close()
    assert all(task.cancelled() for task in spawned)
    assert ended == ["slow"] and len(tasks) == 0


async def test_nothing_starts_after_close() -> None:
    tasks = Tasks()
    await tasks.close()
    with pytest.raises(RuntimeError, match="late"):
        tasks.spawn(forever(), name="late")


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = Tasks()
    other = tasks.spawn(forever(), name="other")
    await tasks.spawn(tasks.close(), name="closer")
    assert other.cancelled()
