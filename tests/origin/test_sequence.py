"""Sequence: every state with every move, and the arithmetic of its stages."""

from __future__ import annotations

import itertools

import pytest

from origin.core.sequence import MOVES, Sequence, State
from tests.origin.build import spec


def in_state(state: State) -> Sequence:
    sequence = Sequence(spec(1))
    if state is not State.QUEUED:
        sequence.admit((0,), 1.0)
    if state is State.ENDED:
        sequence.end()
    return sequence


@pytest.mark.parametrize(("state", "to"), list(itertools.product(State, State)))
def test_only_the_moves_of_the_table(state: State, to: State) -> None:
    sequence = in_state(state)

    def move() -> None:
        if to is State.RUNNING:
            sequence.admit((0,), 2.0)
        elif to is State.QUEUED:
            sequence.evict(2.0)
        else:
            sequence.end()

    if to in MOVES[state]:
        move()
        assert sequence.state is to
    else:
        with pytest.raises(AssertionError):
            move()


def test_a_beam_needs_a_slot_for_each_hypothesis() -> None:
    with pytest.raises(AssertionError):
        Sequence(spec(1, width=4)).admit((0, 1), 1.0)


def test_slots_are_held_while_running_only() -> None:
    sequence = Sequence(spec(1, width=2))
    held = [sequence.slots]
    sequence.admit((3, 5), 1.0)
    held.append(sequence.slots)
    assert sequence.end() == (3, 5)
    held.append(sequence.slots)
    assert held == [(), (3, 5), ()]


def test_waiting_again_counts_as_waiting() -> None:
    sequence = Sequence(spec(1, arrived=10.0))
    sequence.admit((0,), 11.0)
    assert sequence.evict(13.0) == (0,)
    assert sequence.stages_ms(14.0) == {"origin_queue": 2000.0, "encode": 0.0, "decode": 2000.0}
    sequence.admit((1,), 15.0)
    assert sequence.stages_ms(16.0) == {"origin_queue": 3000.0, "encode": 0.0, "decode": 3000.0}


def test_what_is_to_be_read_and_paid() -> None:
    sequence = Sequence(spec(1, draft=(7, 8), width=1))
    assert (sequence.reads, sequence.cost) == (5, 8)
    sequence.admit((0,), 0.0)
    sequence.steps, sequence.produced = 1, [7, 8, 9]
    sequence.evict(0.0)
    assert (sequence.reads, sequence.cost, sequence.draft) == (6, 0, ())


def test_stages_sum_to_the_time_since_arrival() -> None:
    sequence = Sequence(spec(1, arrived=10.0))
    assert sequence.stages_ms(10.5) == {"origin_queue": 500.0, "encode": 0.0, "decode": 0.0}
    sequence.admit((0,), 11.0)
    sequence.encode_s = 0.25
    assert sequence.stages_ms(12.0) == {"origin_queue": 1000.0, "encode": 250.0, "decode": 750.0}
