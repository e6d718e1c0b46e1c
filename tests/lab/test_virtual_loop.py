from __future__ import annotations

import asyncio

import pytest

from nearsay.lab.virtual_loop import Deadlock, run


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> tuple[float, list[str]]:
        order: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(sleeper("late", 600), sleeper("early", 30))
        return asyncio.get_running_loop().time(), order

    now, order = run(main())
    assert order == ["early", "late"]
    assert now == pytest.approx(600, abs=1e-3)


def test_a_hang_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(main())
