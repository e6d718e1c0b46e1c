from __future__ import annotations

import asyncio

import pytest

from edge_worker.together import together
from nearsay.lab.virtual_loop import run
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import Overloaded


async def after(seconds: float, result: str, log: list[str] | None = None) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if log is not None:
            log.append(f"{result} cancelled")
        raise
    if result == "fail":
        raise Overloaded
    return result


def test_results_in_order() -> None:
    async def main() -> None:
        tasks = Tasks()
        assert await together(tasks, [lambda: after(2, "a"), lambda: after(1, "b")], name="t") == ["a", "b"]
        assert await together(tasks, [], name="t") == []
        await asyncio.sleep(0)
        assert len(tasks) == 0

    run(main())


def test_the_first_failure_ends_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks, log = Tasks(), list[str]()
        work = [lambda: after(9, "a", log), lambda: after(1, "fail"), lambda: after(1, "fail")]
        with pytest.raises(Overloaded):
            await together(tasks, work, name="t")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert log == ["a cancelled"] and len(tasks) == 0

    run(main())
    assert not caplog.records, "an expected failure is no crash"


def test_a_cancelled_caller_cancels_all() -> None:
    async def main() -> None:
        tasks, log = Tasks(), list[str]()
        caller = tasks.spawn(
            together(tasks, [lambda: after(9, "a", log), lambda: after(9, "b", log)], name="t"), name="c"
        )
        await asyncio.sleep(1)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        await asyncio.sleep(0)
        assert log == ["a cancelled", "b cancelled"]

    run(main())
