"""Who overtakes whom, on a loop whose clock jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from nearsay.client import Done, Event, Result, SegmentDone, Translation
from nearsay.client.results import Partial
from nearsay.lab.overtake import OvertakePlan, Overtaking, Passage, overtaking, own_texts, run_overtake
from nearsay.lab.sentences import SHORT_ENGLISH
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import Overloaded
from nearsay.wire.messages import Priority
from tests.lab.test_load import JumpingLoop

DONE = Done(Result((Translation("x", "en", "origin", "m@1"),), {}, "r"))
BULK_S = 1.0


async def served(text: str, priority: Priority) -> AsyncGenerator[Event, None]:
    """Bulk text `n` begins after n tenths of a second and decodes for one; interactive ones take 50 ms in all."""
    if text == "refused":
        raise Overloaded
    await asyncio.sleep(int(text) * 0.1 if priority == "batch" else 0.01)
    yield Partial(0, 0, 1, "x")
    await asyncio.sleep(BULK_S if priority == "batch" else 0.04)
    yield SegmentDone(0, 0, 2, "x")
    yield DONE


def played(**fields: object) -> Overtaking:
    plan = OvertakePlan(**{"bulk": ["0", "1", "2", "3"], "interactive": ["a", "b"], "alone": ["c"], **fields})  # type: ignore[arg-type]

    async def run() -> Overtaking:
        tasks = Tasks()
        try:
            return await run_overtake(plan, served, tasks)
        finally:
            await tasks.close()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(run())


def test_interactive_texts_go_out_when_enough_bulk_texts_are_under_way() -> None:
    found = played(begun_min=3, gap_s=0.5)
    mine = [passage for passage in found.passages if passage.priority == "interactive"]
    assert [passage.sent_s for passage in mine] == pytest.approx([0.2, 0.7])
    assert [passage.overtook for passage in mine] == [3, 4]
    assert found.overtakers == 2
    assert found.passages[0].number == 0 and found.passages[0].priority == "interactive"
    assert [passage.ended_s for passage in found.passages] == sorted(passage.ended_s for passage in found.passages)
    assert (found.alone_ms.count, found.alone_ms.mean) == (1, pytest.approx(50.0))
    assert found.interactive_ms.mean == pytest.approx(50.0) and found.bulk_ms.max == pytest.approx(1300.0)


def test_what_was_answered_before_was_not_overtaken() -> None:
    found = played(begun_min=3, gap_s=1.0)
    assert [passage.overtook for passage in found.passages if passage.priority == "interactive"] == [3, 1]


def test_it_ends_also_when_bulk_texts_never_get_under_way() -> None:
    found = played(bulk=["refused", "refused"], begun_min=2)
    assert found.overtakers == 0
    assert [(p.code, p.began_s) for p in found.passages if p.priority == "batch"] == [("overloaded", None)] * 2
    assert found.bulk_ms.count == 0 and found.interactive_ms.count == 2


def test_a_refused_text_overtakes_nobody() -> None:
    found = played(interactive=["refused"], begun_min=1)
    assert found.overtakers == 0 and found.interactive_ms.count == 0


def test_nobody_overtakes_who_did_not_decode_when_it_came() -> None:
    waits = Passage("batch", 0, 0.0, 0.5, 2.0)
    assert overtaking([], [waits, Passage("interactive", 0, 0.4, 0.5, 1.0)]).overtakers == 0
    assert overtaking([], [waits, Passage("interactive", 0, 0.6, 0.7, 1.0)]).overtakers == 1
    assert overtaking([], [waits, Passage("interactive", 0, 0.6, 0.7, 2.5)]).overtakers == 0


def test_our_own_texts_are_one_segment_each_and_none_comes_twice_in_both_classes() -> None:
    plan = own_texts(30, 8)
    assert len(plan.bulk) == len(set(plan.bulk)) + 30 - 24 == 30 and len(plan.interactive) == 8
    for text in plan.bulk:
        assert text.count(".") == 1 and not set("?!") & set(text)
        assert not any(short[:-1] in text for short in (*plan.interactive, *plan.alone))
    assert not set(plan.interactive) & set(plan.alone) and set(plan.alone) < set(SHORT_ENGLISH)
    assert plan.begun_min == 30 and own_texts(3, 1).begun_min == 3
