"""WaitingRoom: class before deadline before arrival; bounded per class."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.messages import Priority
from origin.core.sequence import Sequence
from origin.core.waiting import WaitingRoom
from tests.origin.build import spec


def drain(room: WaitingRoom, blocked: frozenset[str] = frozenset()) -> list[int]:
    order = []
    while (sequence := room.first(blocked)) is not None:
        room.remove(sequence)
        order.append(sequence.spec.id)
    return order


def test_interactive_first_then_earliest_deadline_then_arrival() -> None:
    room = WaitingRoom({"interactive": 9, "batch": 9})
    room.add(Sequence(spec(1, deadline=1.0, priority="batch")))
    room.add(Sequence(spec(2, deadline=9.0)))
    room.add(Sequence(spec(3, deadline=5.0, model="b@1")))
    room.add(Sequence(spec(4, deadline=9.0)))
    assert drain(room) == [3, 2, 4, 1]


def test_a_blocked_model_does_not_block_others() -> None:
    room = WaitingRoom({"interactive": 9, "batch": 9})
    room.add(Sequence(spec(1, model="a@1")))
    room.add(Sequence(spec(2, model="b@1", priority="batch")))
    assert drain(room, frozenset({"a@1"})) == [2]
    assert len(room) == 1


def test_each_class_has_its_own_bound() -> None:
    room = WaitingRoom({"interactive": 1, "batch": 2})
    room.add(Sequence(spec(1, priority="batch")))
    room.add(Sequence(spec(2, priority="batch")))
    assert room.full("batch") and not room.full("interactive")
    room.add(Sequence(spec(3)))
    assert room.full("interactive")


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a@1", "b@1"]), st.booleans()), max_size=30))
def test_expired_are_exactly_those_past_their_deadline(entries: list[tuple[int, str, bool]]) -> None:
    room = WaitingRoom({"interactive": 99, "batch": 99})
    for number, (deadline, model, batch) in enumerate(entries):
        priority: Priority = "batch" if batch else "interactive"
        room.add(Sequence(spec(number, deadline=deadline, model=model, priority=priority)))
    late = {sequence.spec.id for sequence in room.expired(3.0)}
    assert late == {number for number, (deadline, _, _) in enumerate(entries) if deadline <= 3}
