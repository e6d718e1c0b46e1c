"""Which of a model's engines gets a segment."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor

import pytest

from edge_worker import engine_thread
from edge_worker.core.batcher import BatchLimits
from edge_worker.engine_thread import BACKGROUND_NICE, NICE_MAX, EngineThread
from edge_worker.lane import Lane
from edge_worker.local_model import LocalModel
from nearsay.lab.virtual_loop import run
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalInput
from nearsay.text.errors import EngineUnavailable
from nearsay.wire.messages import Priority
from tests.edge_worker.room import RUN_S, InlineRun, now
from tests.kit.fake_engine import FakeEngine


class Room:
    """A model of two fake engines; the second opens in OPEN_S."""

    OPEN_S = 2.5 * RUN_S

    def __init__(self, failure: Exception | None = None) -> None:
        self.tasks = Tasks()
        self.first, self.second = FakeEngine(), FakeEngine()
        self.opened = 0
        self._failure = failure
        self.model = LocalModel(self._lane(self.first), tasks=self.tasks, open_bulk=self._open)

    def _lane(self, engine: FakeEngine) -> Lane:
        return Lane(engine, run=InlineRun(), limits=BatchLimits(), clock=now, tasks=self.tasks, name="test")

    async def _open(self) -> Lane:
        self.opened += 1
        await asyncio.sleep(self.OPEN_S)
        if self._failure is not None:
            raise self._failure
        return self._lane(self.second)

    async def ask(self, text: str, priority: Priority = "interactive") -> float:
        """How long it took."""
        began = now()
        answer = await self.model.translate(LocalInput(text, (5, 6)), priority=priority, deadline=began + 10.0)
        assert answer.output.text == text
        return now() - began

    async def ask_all(self, *asked: tuple[str, Priority]) -> list[float]:
        return await asyncio.gather(*(self.ask(*each) for each in asked))


def with_room(test: Callable[[Room], Awaitable[None]], failure: Exception | None = None) -> Room:
    async def main() -> Room:
        room = Room(failure)
        try:
            await test(room)
        finally:
            await room.model.close()
            await room.tasks.close()
        return room

    return run(main())


def texts(engine: FakeEngine) -> str:
    return " ".join("+".join(item.text for item in batch) for batch in engine.batches)


def test_interactive_work_alone_opens_nothing() -> None:
    async def test(room: Room) -> None:
        await room.ask_all(("a", "interactive"), ("b", "interactive"))

    room = with_room(test)
    assert (room.opened, texts(room.first), room.second.closed) == (0, "a+b", False)


def test_batch_work_moves_to_the_second_engine_when_that_is_open() -> None:
    async def test(room: Room) -> None:
        await room.ask("x", "batch")  # meanwhile the first takes it
        await asyncio.sleep(Room.OPEN_S)
        await room.ask_all(("y", "batch"), ("a", "interactive"), ("z", "batch"))
        assert room.model.room == 2 * BatchLimits().rows_waiting_max

    room = with_room(test)
    assert (room.opened, texts(room.first), texts(room.second)) == (1, "x a", "y+z")
    assert room.first.closed and room.second.closed


def test_interactive_work_does_not_wait_for_batch_work() -> None:
    async def test(room: Room) -> None:
        await room.ask("x", "batch")
        await asyncio.sleep(Room.OPEN_S)
        bulk = [room.tasks.spawn(room.ask("y", "batch"), name="bulk") for _ in range(100)]
        await asyncio.sleep(RUN_S / 2)
        assert (room.model.running, room.model.waiting) == (32, 68)
        assert room.model.expected_ms(3, "interactive") < room.model.expected_ms(3, "batch")
        assert await room.ask("a") == pytest.approx(RUN_S)
        await asyncio.gather(*bulk)

    with_room(test)


@pytest.mark.parametrize("failure", [EngineUnavailable("fake", "gone"), BrokenExecutor("no priorities")])
def test_where_the_second_engine_does_not_open_the_first_serves_all(failure: Exception) -> None:
    async def test(room: Room) -> None:
        await room.ask("x", "batch")
        await asyncio.sleep(Room.OPEN_S)
        await room.ask_all(("a", "interactive"), ("y", "batch"))

    room = with_room(test, failure)
    assert (room.opened, texts(room.first)) == (1, "x a+y")


def test_closing_while_the_second_engine_opens_closes_both() -> None:
    async def test(room: Room) -> None:
        await room.ask("x", "batch")

    room = with_room(test)
    assert room.first.closed and room.second.closed


async def test_a_background_thread_and_what_it_starts_yield_to_others() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def of_a_child() -> int:
        found: list[int] = []
        child = threading.Thread(target=lambda: found.append(niceness()))
        child.start()
        child.join()
        return found[0]

    usual, background = EngineThread("usual"), EngineThread("background", background=True)
    here = niceness()
    assert await usual(niceness) == niceness() == here
    assert await background(niceness) == await background(of_a_child) == min(here + BACKGROUND_NICE, NICE_MAX)
    usual.close()
    background.close()


async def test_a_system_without_priorities_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(engine_thread.os, "setpriority", refuse)
    thread = EngineThread("background", background=True)
    with pytest.raises(BrokenExecutor):
        await thread(lambda: 1)
    thread.close()
