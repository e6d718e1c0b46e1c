"""Equal segments in flight at once, through a whole edge: who runs, who waits, what a cancel ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nearsay.runtime.link import Stream
from nearsay.wire.errors import DeadlineExceeded, NearsayError, Unavailable
from nearsay.wire.messages import Submit, Translate, Translated, Update
from tests.edge_worker.room import RUN_S, STEP_S, Room, reverse, silence
from tests.edge_worker.test_server import CAT, with_room


async def ask(room: Room, request_id: str, text: str = CAT, **fields: Any) -> Stream:
    fields = {"source": "en", "target": "de", "tier": "edge"} | fields
    return await room.peer.open(Translate(request_id, (text,), **fields))


async def answer(stream: Stream) -> Translated:
    async for message in stream:
        if isinstance(message, Translated):
            return message
    raise AssertionError("no answer")


def rows(room: Room) -> int:
    return sum(len(batch) for engine in room.opened for batch in engine.batches)


def coalesced(room: Room) -> float:
    return float(room.edge.metrics.snapshot()["counters"].get("coalesced", 0.0))


def test_equal_segments_of_a_tenant_run_once(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        streams = [await ask(room, f"r{number}", f"{CAT}\n{CAT}\n", tenant="blue") for number in range(5)]
        answers = [await answer(stream) for stream in streams]
        assert {text.translations[0].text for text in answers} == {"mat the on sat cat the\nmat the on sat cat the\n"}
        assert rows(room) == 1
        assert coalesced(room) == 9
        for one in answers:  # whoever waits accounts for his own time
            assert sum(one.stages_ms.values()) == pytest.approx(one.accounted_ms)
            assert min(one.stages_ms.values()) >= 0
        assert len(room.edge.shared) == 0

    with_room(tmp_path, test)


@pytest.mark.parametrize(
    "other", [{"tenant": "red"}, {"priority": "batch"}, {"request_id": "r1", "attempt": 2}, {"text": "the dog sat"}]
)
def test_what_is_not_equal_runs_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    async def test(room: Room) -> None:
        one = await ask(room, "r1", tenant="blue")
        other_fields: dict[str, Any] = {"request_id": "r2", "tenant": "blue"} | other
        two = await ask(room, **other_fields)
        await asyncio.gather(answer(one), answer(two))
        assert rows(room) == 2
        assert coalesced(room) == 0

    with_room(tmp_path, test)


def test_one_who_joins_late_accounts_for_the_rest_only(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        first = await ask(room, "r1")
        await asyncio.sleep(RUN_S * 0.6)
        second = await answer(await ask(room, "r2"))
        assert second.accounted_ms == pytest.approx(RUN_S * 400, abs=1e-3)
        assert sum(second.stages_ms.values()) == pytest.approx(second.accounted_ms)
        await answer(first)
        assert rows(room) == 1

    with_room(tmp_path, test)


def test_one_who_joins_an_origins_run_late_accounts_for_the_rest_only(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        first = await ask(room, "r1", tier="origin")
        await room.until(lambda: bool(room.origins[0].submits))
        await asyncio.sleep(3 * STEP_S)
        second = await answer(await ask(room, "r2", tier="origin"))
        assert sum(second.stages_ms.values()) == pytest.approx(second.accounted_ms, rel=0.01)
        await answer(first)
        assert len(room.origins[0].submits) == 1

    with_room(tmp_path, test, origins=1)


def test_a_waiter_that_leaves_takes_only_its_own_reference(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        streams = [await ask(room, f"r{number}", tier="origin") for number in range(3)]
        await room.until(lambda: bool(room.origins[0].submits))
        streams[0].cancel()  # the one whose run it is
        streams[1].cancel()
        assert (await answer(streams[2])).translations[0].tier == "origin"
        assert (len(room.origins[0].submits), room.origins[0].cancelled) == (1, 0)

    with_room(tmp_path, test, origins=1)


def test_what_nobody_shared_ends_with_its_waiter(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        stream = await ask(room, "r1", tier="origin")
        await room.until(lambda: bool(room.origins[0].submits))
        stream.cancel()
        await room.until(lambda: room.origins[0].cancelled == 1, timeout_s=0.01)
        assert len(room.edge.shared) == 0

    with_room(tmp_path, test, origins=1, script=silence)


def test_abandoned_shared_work_goes_on_for_its_grace_time(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        origin = room.origins[0]
        for comes_back in (True, False):
            origin.submits.clear()
            streams = [await ask(room, f"r{number}", tier="origin") for number in range(2)]
            await room.until(lambda: bool(origin.submits))
            await asyncio.sleep(0.01)
            for stream in streams:
                stream.cancel()
            await asyncio.sleep(0.15)
            assert origin.cancelled == 0
            if comes_back:
                again = await ask(room, "r0", attempt=2, tier="origin")
                await asyncio.sleep(0.5)  # the grace time passes, but somebody waits again
                assert (len(origin.submits), origin.cancelled) == (1, 0)
                again.cancel()
                await asyncio.sleep(0.25)
            else:
                await asyncio.sleep(0.1)
            assert origin.cancelled == 1
            origin.cancelled = 0
        assert len(room.edge.shared) == 0

    with_room(tmp_path, test, origins=1, script=silence, config={"coalesce": {"grace_s": 0.2}})


def test_everybody_hears_of_a_failure(tmp_path: Path) -> None:
    async def fails(_: Stream, __: Submit) -> None:
        await asyncio.sleep(0.01)
        raise Unavailable(code="origin_unavailable")

    async def test(room: Room) -> None:
        streams = [await ask(room, f"r{number}", tier="origin") for number in range(3)]
        errors = await asyncio.gather(*map(answer, streams), return_exceptions=True)
        assert [error.code for error in errors if isinstance(error, NearsayError)] == ["origin_unavailable"] * 3
        assert len(room.origins[0].submits) == 1

    with_room(tmp_path, test, origins=1, script=fails)


def test_whoever_has_more_time_than_the_run_works_by_himself(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async def script(stream: Stream, submit: Submit) -> None:
            await (silence if len(room.origins[0].submits) == 1 else reverse)(stream, submit)

        room.origins[0].script = script
        hasty = await ask(room, "r1", tier="origin", budget_ms=50.0)
        patient = await ask(room, "r2", tier="origin")
        with pytest.raises(DeadlineExceeded):
            await answer(hasty)
        assert (await answer(patient)).translations[0].tier == "origin"
        assert len(room.origins[0].submits) == 2

    with_room(tmp_path, test, origins=1)


def test_streams_share_a_run_and_a_late_one_sees_all_its_words(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async def partials(stream: Stream) -> list[str]:
            return [m.text async for m in stream if isinstance(m, Update) and m.kind == "partial"]

        first = await ask(room, "r1", tier="origin", stream=True)
        await room.until(lambda: bool(room.origins[0].submits))
        await asyncio.sleep(4 * STEP_S)
        second = await ask(room, "r2", tier="origin", stream=True)
        all_of_them, late = await asyncio.gather(partials(first), partials(second))
        assert len(room.origins[0].submits) == 1
        assert 2 <= len(late) < len(all_of_them) and late == all_of_them[-len(late) :]

    with_room(tmp_path, test, origins=1)
