"""WaitingRoom: bounded by class and by tenant, and its counts are right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.messages import Priority
from origin.core.sequence import Sequence
from origin.core.waiting import CLASSES, WaitingRoom
from tests.origin.build import spec


def test_a_blocked_model_does_not_block_others() -> None:
    room = WaitingRoom({"interactive": 9, "batch": 9})
    room.add(Sequence(spec(1, model="a@1")))
    room.add(Sequence(spec(2, model="b@1")))
    first = room.first("interactive", {"a@1"})
    assert first is not None and first.spec.id == 2
    assert room.first("interactive", {"a@1", "b@1"}) is None and room.first("batch", ()) is None


def test_each_class_has_its_own_bound() -> None:
    room = WaitingRoom({"interactive": 1, "batch": 2}, tenant_share_max=1.0)
    room.add(Sequence(spec(1, priority="batch")))
    room.add(Sequence(spec(2, priority="batch")))
    assert room.full("batch") and not room.full("interactive")
    room.add(Sequence(spec(3)))
    assert room.full("interactive")


def test_one_tenant_cannot_fill_a_queue() -> None:
    room = WaitingRoom({"interactive": 8, "batch": 8}, tenant_share_max=0.5)
    for number in range(4):
        assert not room.full("interactive", "loud")
        room.add(Sequence(spec(number, tenant="loud")))
    assert room.full("interactive", "loud") and not room.full("interactive", "quiet")
    assert not room.full("batch", "loud")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(1, 4), st.booleans()), max_size=30))
def test_counts_are_those_of_the_sequences_that_wait(entries: list[tuple[bool, str, int, bool]]) -> None:
    room = WaitingRoom({"interactive": 99, "batch": 99})
    there: list[Sequence] = []
    for number, (batch, model, width, leaves) in enumerate(entries):
        priority: Priority = "batch" if batch else "interactive"
        sequence = Sequence(spec(number, priority=priority, model=model, width=width, tenant=model))
        room.add(sequence)
        there.append(sequence)
        if leaves:
            room.remove(there.pop(0))
    assert len(room) == len(there)
    for priority in CLASSES:
        for model in "ab":
            mine = [s for s in there if (s.spec.priority, s.spec.model) == (priority, model)]
            queued = room.queued(priority, model)
            assert queued.sequences == len(mine)
            assert (queued.rows, queued.tokens) == (sum(s.spec.width for s in mine), sum(s.reads for s in mine))
