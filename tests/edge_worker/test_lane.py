"""Batches across requests on one engine, on virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from edge_worker.core.batcher import BatchLimits
from edge_worker.engine_thread import EngineThread
from edge_worker.lane import Lane, LocalAnswer
from nearsay.lab.virtual_loop import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalInput
from nearsay.wire.errors import Unavailable
from nearsay.wire.messages import Priority
from tests.edge_worker.room import RUN_S, InlineRun, now
from tests.kit.fake_engine import FakeEngine


def with_model(test: Callable[[Lane, FakeEngine, Tasks], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        tasks, engine = Tasks(), FakeEngine(batch_max=4)
        model = Lane(engine, run=InlineRun(), limits=BatchLimits(**limits), clock=now, tasks=tasks, name="test")
        try:
            await test(model, engine, tasks)
        finally:
            await model.close()
            await tasks.close()
            assert engine.closed

    run(main())


async def ask(model: Lane, text: str, priority: Priority = "interactive", budget_s: float = 10.0) -> LocalAnswer:
    return await model.begin(LocalInput(text, (5, 6)), priority=priority, deadline=now() + budget_s)


def texts(engine: FakeEngine) -> list[str]:
    return [" ".join(item.text for item in batch) for batch in engine.batches]


def test_an_idle_engine_starts_at_once() -> None:
    async def test(model: Lane, engine: FakeEngine, _: Tasks) -> None:
        began = now()
        answer = await ask(model, "a b")
        assert answer.output.text == "b a"
        assert answer.began == began and answer.ended == now() == pytest.approx(began + RUN_S)

    with_model(test)


def test_what_arrives_while_a_batch_runs_forms_the_next_one() -> None:
    async def test(model: Lane, engine: FakeEngine, tasks: Tasks) -> None:
        first = tasks.spawn(ask(model, "a"), name="first")
        await asyncio.sleep(RUN_S / 2)
        await asyncio.gather(first, ask(model, "x", "batch"), ask(model, "b"), ask(model, "c"))
        assert texts(engine) == ["a", "b c x"]

    with_model(test)


def test_the_engines_own_bound_is_kept() -> None:
    async def test(model: Lane, engine: FakeEngine, _: Tasks) -> None:
        await asyncio.gather(*(ask(model, name) for name in "abcdefg"))
        assert texts(engine) == ["a b c d", "e f g"]

    with_model(test, rows_max=32)


def test_a_cancelled_waiter_is_dropped_before_it_runs() -> None:
    async def test(model: Lane, engine: FakeEngine, tasks: Tasks) -> None:
        waiters = [tasks.spawn(ask(model, name), name=name) for name in "abc"]
        await asyncio.sleep(RUN_S / 2)
        late = [tasks.spawn(ask(model, name), name=name) for name in "de"]
        await asyncio.sleep(0)
        late[0].cancel()
        waiters[1].cancel()  # in the batch that runs: its answer is thrown away
        await asyncio.gather(waiters[0], waiters[2], late[1])
        assert texts(engine) == ["a b c", "e"]
        assert (model.waiting, model.running) == (0, 0)

    with_model(test)


def test_expected_time_and_room() -> None:
    async def test(model: Lane, engine: FakeEngine, tasks: Tasks) -> None:
        for _ in range(100):
            await ask(model, "a")
        alone = model.expected_ms(3, "interactive")
        assert alone == pytest.approx(RUN_S * 1000, rel=0.1)
        waiters = [tasks.spawn(ask(model, name), name=name) for name in "abcd"]
        await asyncio.sleep(RUN_S / 10)
        assert (model.running, model.waiting, model.room) == (4, 0, 4)
        assert alone < model.expected_ms(3, "interactive") < 6 * alone
        waiters += [tasks.spawn(ask(model, name), name=name) for name in "efgh"]
        await asyncio.sleep(RUN_S / 10)
        assert (model.running, model.waiting, model.room) == (4, 4, 0)
        assert model.expected_ms(3, "interactive") == float("inf")
        await asyncio.gather(*waiters)

    with_model(test, rows_waiting_max=4)


def test_closing_fails_whoever_waits() -> None:
    async def test(model: Lane, engine: FakeEngine, tasks: Tasks) -> None:
        async def outcome(name: str) -> str:
            try:
                await ask(model, name)
            except Unavailable as error:
                return error.code
            return "answered"

        waiters = [tasks.spawn(outcome(name), name=name) for name in "abcdef"]
        await asyncio.sleep(RUN_S / 2)
        await model.close()
        assert await asyncio.gather(*waiters) == ["draining"] * 6

    with_model(test)


async def test_an_engine_is_used_on_one_thread_only() -> None:
    thread, tasks = EngineThread("engine"), Tasks()
    names = set()

    def note(_: object) -> None:
        names.add(threading.current_thread().name)

    engine = FakeEngine(spend=note)
    model = Lane(engine, run=thread, limits=BatchLimits(), clock=time.monotonic, tasks=tasks, name="test")
    source = LocalInput("a b", (5,))
    answers = await asyncio.gather(
        *(model.begin(source, priority="interactive", deadline=time.monotonic() + 10) for _ in range(5))
    )
    assert [answer.output.text for answer in answers] == ["b a"] * 5
    await model.close()
    await tasks.close()
    thread.close()
    assert len(names) == 1 and engine.closed and threading.current_thread().name not in names
