from __future__ import annotations

import itertools

import pytest

from nearsay.runtime.lifecycle import MOVES, Lifecycle
from nearsay.wire.messages import State

STATES: tuple[State, ...] = ("starting", "ready", "draining", "stopped")


@pytest.mark.parametrize(("start", "to"), list(itertools.product(STATES, STATES)))
def test_every_move(start: State, to: State) -> None:
    lifecycle = Lifecycle()
    lifecycle.state = start
    told: list[State] = []
    lifecycle.subscribe(told.append)
    if start == to:
        lifecycle.move(to)
        assert told == []
    elif to in MOVES[start]:
        lifecycle.move(to)
        assert told == [to] == [lifecycle.state]
    else:
        with pytest.raises(AssertionError):
            lifecycle.move(to)
        assert lifecycle.state == start and told == []


def test_states_only_go_forward() -> None:
    assert all(STATES.index(to) > STATES.index(start) for start, moves in MOVES.items() for to in moves)


def test_what_stops_in_the_course_of_an_end_is_no_failure() -> None:
    lifecycle = Lifecycle()
    lifecycle.move("ready")
    lifecycle.move("draining")
    lifecycle.fail("the engine has stopped")
    assert lifecycle.failure == ""
