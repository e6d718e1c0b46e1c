"""Which origin gets a sequence, and what becomes of it when a link breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from edge_worker.origin_client import OriginClient
from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import LinkLimits, Peer, Stream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, LinkLost, Unavailable
from nearsay.wire.messages import Hello, LoadReport, ModelInfo, Submit, pack_ids, unpack_ids
from tests.edge_worker.room import FakeOrigin, Script, now, reverse, silence

MODEL = ModelInfo("m", "1", "en", "de", "origin", "s", "t")
OTHER = ModelInfo("n", "1", "en", "fr", "origin", "s", "t")


@dataclass
class Origins:
    client: OriginClient
    fakes: list[FakeOrigin]
    tasks: Tasks

    async def submit(self, *ids: int, budget_s: float = 10.0, session: str = "", **options: object) -> list[int]:
        submit = Submit("r", "m@1", "s", "t", pack_ids([*ids, 0]), session=session)
        finished = await self.client.submit(submit, deadline=now() + budget_s, **options)  # type: ignore[arg-type]
        return list(unpack_ids(finished.ids))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.001)


@asynccontextmanager
async def origins(*models: list[ModelInfo], script: Script = reverse) -> AsyncIterator[Origins]:
    """A client of one fake origin for each list of models."""
    tasks, fakes = Tasks(), [FakeOrigin(each, script) for each in models]

    def peer(number: int, fake: FakeOrigin) -> Peer:
        return Peer(
            f"ws://origin-{number}/link",
            hello=lambda: Hello("edge"),
            tasks=tasks,
            limits=LinkLimits(),
            clock=now,
            connect=lambda _: fake.connect(),
            rng=random.Random(2),
        )

    client = OriginClient([peer(*each) for each in enumerate(fakes)], clock=now, rng=random.Random(3))
    await client.start()
    room = Origins(client, fakes, tasks)
    try:
        await room.until(lambda: all(each.ready for each in client.peers))
        yield room
    finally:
        await client.close()
        for fake in fakes:
            await fake.close()
        await tasks.close()


def with_origins(
    test: Callable[[Origins], Awaitable[None]], *models: list[ModelInfo], script: Script = reverse
) -> None:
    async def main() -> None:
        async with origins(*models, script=script) as room:
            await test(room)

    run(main())


def test_ids_go_out_and_come_back_as_they_are_made() -> None:
    async def test(room: Origins) -> None:
        seen: list[list[int]] = []
        assert await room.submit(5, 6, 7, on_ids=lambda ids: seen.append(list(ids))) == [7, 6, 5]
        assert seen == [[7], [7, 6], [7, 6, 5]]
        assert await room.submit(5, 6) == [6, 5]
        assert [submit.stream for submit in room.fakes[0].submits] == [True, False]
        assert room.fakes[0].submits[0].budget_ms == pytest.approx(10_000, abs=1)

    with_origins(test, [MODEL])


def test_only_origins_with_the_model_are_asked_and_work_is_spread() -> None:
    async def test(room: Origins) -> None:
        await asyncio.gather(*(room.submit(n, n) for n in range(40)))
        first, other, third = (len(fake.submits) for fake in room.fakes)
        assert other == 0 and first + third == 40 and abs(first - third) <= 2

    with_origins(test, [MODEL], [OTHER], [MODEL, OTHER])


def test_a_lost_link_costs_one_try_on_another_replica() -> None:
    async def test(room: Origins) -> None:
        async def die(_: Stream, submit: Submit) -> None:
            await room.fakes[0 if submit in room.fakes[0].submits else 1].fail()

        for fake in room.fakes[:2]:
            fake.script = die
        room.fakes[1].script = reverse
        await asyncio.gather(*(room.submit(1, 2) for _ in range(4)))
        attempts = [submit.attempt for fake in room.fakes for submit in fake.submits]
        assert sorted(set(attempts)) == [1, 2]

    with_origins(test, [MODEL], [MODEL])


def test_a_second_lost_link_is_the_callers() -> None:
    async def test(room: Origins) -> None:
        async def die(_: Stream, submit: Submit) -> None:
            for fake in room.fakes:
                if submit in fake.submits:
                    await fake.fail()

        for fake in room.fakes:
            fake.script = die
        with pytest.raises(LinkLost):
            await room.submit(1)
        assert sum(len(fake.submits) for fake in room.fakes) == 2, "never a third attempt"

    with_origins(test, [MODEL], [MODEL], [MODEL])


def test_nobody_to_ask() -> None:
    async def test(room: Origins) -> None:
        with pytest.raises(Unavailable) as caught:
            await room.submit(1)
        assert caught.value.code == "origin_unavailable"

    with_origins(test, [OTHER])


def test_an_answer_from_the_origin_is_never_asked_for_twice() -> None:
    async def refuse(_: Stream, __: Submit) -> None:
        raise InvalidRequest(code="model_mismatch")

    async def test(room: Origins) -> None:
        with pytest.raises(InvalidRequest):
            await room.submit(1)
        assert sum(len(fake.submits) for fake in room.fakes) == 1

    with_origins(test, [MODEL], [MODEL], script=refuse)


def test_a_silent_origin_is_left_at_the_deadline() -> None:
    async def test(room: Origins) -> None:
        began = now()
        with pytest.raises(DeadlineExceeded):
            await room.submit(1, budget_s=0.5)
        assert now() - began == pytest.approx(0.5, abs=1e-3)
        await room.until(lambda: room.fakes[0].cancelled == 1)
        assert room.client.peers[0].in_flight == 0
        with pytest.raises(DeadlineExceeded):
            await room.submit(1, budget_s=0.0)

    with_origins(test, [MODEL], script=silence)


def test_a_caller_that_leaves_takes_its_sequence_along() -> None:
    async def test(room: Origins) -> None:
        task = room.tasks.spawn(room.submit(1), name="caller")
        await room.until(lambda: len(room.fakes[0].submits) == 1)
        task.cancel()
        await room.until(lambda: room.fakes[0].cancelled == 1)

    with_origins(test, [MODEL], script=silence)


def test_what_is_known_of_origins() -> None:
    async def test(room: Origins) -> None:
        client, fake = room.client, room.fakes[0]
        assert not client.unseen and client.ready("m@1") and not client.ready("x@1")
        assert [info.name for info in client.models()] == ["m@1"]
        assert not client.wants_drafts("m@1")
        fake.report(wants_drafts=("m@1",), models=(MODEL, OTHER))
        await room.until(lambda: client.wants_drafts("m@1"))
        assert client.ready("n@1") and not client.wants_drafts("n@1")
        fake.server.publish(LoadReport("draining"))
        await room.until(lambda: not client.ready("m@1"))
        await fake.fail()
        await room.until(lambda: not client.peers[0].ready)
        assert [info.name for info in client.models()] == ["m@1"], "it may come back"
        assert not client.ready("m@1") and not client.wants_drafts("m@1")

    with_origins(test, [MODEL])


def test_a_session_stays_with_its_replica_and_sessions_spread() -> None:
    async def main() -> None:
        async with origins([MODEL], [MODEL], [MODEL]) as room:
            homes = {}
            for name in map(str, range(12)):
                before = [len(fake.submits) for fake in room.fakes]
                for _ in range(3):
                    await room.submit(1, session=name)
                grown = [len(fake.submits) - count for fake, count in zip(room.fakes, before, strict=True)]
                assert sorted(grown) == [0, 0, 3]
                homes[name] = grown.index(3)
            assert len(set(homes.values())) == 3
            lost = homes["0"]
            await room.fakes[lost].fail()
            await room.until(lambda: not room.client.peers[lost].ready)
            for name, home in homes.items():
                before = len(room.fakes[home].submits)
                assert await room.submit(1, session=name) == [1]
                assert (len(room.fakes[home].submits) > before) == (home != lost), "only the lost one's move"

    run(main())
