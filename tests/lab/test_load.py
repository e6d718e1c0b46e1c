"""The open loop, on a loop whose clock jumps to the next timer: exact, and over at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from nearsay.client import Result, Translation
from nearsay.lab.load import LoadPlan, run_load
from nearsay.lab.report import Report
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import Overloaded

T = TypeVar("T")
ANSWER = Result((Translation("x", "en", "edge", "m@1"),), {"parse": 1.0}, "r")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time passes only by waiting for it."""

    def __init__(self) -> None:
        super().__init__(_Jump(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


def played(plan: LoadPlan, send: Callable[[int], Coroutine[Any, Any, Result]], progress: Any = None) -> Report:
    async def run() -> Report:
        tasks = Tasks()
        try:
            return await run_load(plan, send, tasks, progress or (lambda *_: None))
        finally:
            await tasks.close()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(run())


async def takes_100_ms(_: int) -> Result:
    await asyncio.sleep(0.1)
    return ANSWER


def test_requests_go_out_when_due_not_when_answers_come() -> None:
    plan = LoadPlan(rate_per_s=50, duration_s=2, arrivals="constant")
    report = played(plan, takes_100_ms)
    assert (report.requests, report.ok) == (100, 100)
    assert report.latency_ms.max == pytest.approx(100)
    assert report.late_ms.max == pytest.approx(0, abs=1e-3)
    assert report.tiers == {"edge": 100}
    assert report.stages_ms["parse"].count == 100


def test_what_the_in_flight_limit_holds_back_is_late() -> None:
    plan = LoadPlan(rate_per_s=20, duration_s=1, arrivals="constant", in_flight_max=1)
    running = most = 0

    async def send(number: int) -> Result:
        nonlocal running, most
        running += 1
        most = max(most, running)
        result = await takes_100_ms(number)
        running -= 1
        return result

    report = played(plan, send)
    assert most == 1
    assert report.service_ms.max == pytest.approx(100)
    assert report.latency_ms.max == pytest.approx(100 + 19 * 50)


def test_warmup_is_sent_but_not_reported() -> None:
    sent: list[int] = []

    async def send(number: int) -> Result:
        sent.append(number)
        return await takes_100_ms(number)

    report = played(LoadPlan(rate_per_s=10, duration_s=1, warmup_s=1, arrivals="constant"), send)
    assert (len(sent), report.requests) == (20, 10)
    assert report.duration_s == pytest.approx(1.0)


def test_requests_are_bounded() -> None:
    assert played(LoadPlan(rate_per_s=1_000, duration_s=1_000, requests_max=7), takes_100_ms).requests == 7


def test_failures_are_counted_and_told() -> None:
    seen: list[tuple[int, int, int]] = []

    async def send(number: int) -> Result:
        if number % 2:
            raise Overloaded
        return ANSWER

    report = played(
        LoadPlan(rate_per_s=10, duration_s=1, arrivals="constant"), send, lambda *counts: seen.append(counts)
    )
    assert (report.ok, report.errors) == (5, {"overloaded": 5})
    assert seen[-1] == (10, 10, 5)


def test_poisson_with_a_seed_is_repeatable() -> None:
    plan = LoadPlan(rate_per_s=50, duration_s=2, seed=3)
    assert played(plan, takes_100_ms) == played(plan, takes_100_ms)
