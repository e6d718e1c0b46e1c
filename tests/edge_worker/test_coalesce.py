from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.coalesce import CoalesceLimits, Coalescer, Flight, Who

LIMITS = CoalesceLimits(runs_max=3, grace_s=1.0)
A, B = Who("a", 1), Who("b", 1)


def test_equal_keys_share_until_the_run_is_over() -> None:
    runs: Coalescer[str] = Coalescer(LIMITS)
    assert runs.join("key", A) is None
    flight = runs.open("key", A, "run")
    assert runs.join("key", B) is flight
    assert runs.join("other", B) is None
    runs.close(flight)
    assert runs.join("key", B) is None
    assert len(runs) == 0


def test_a_hedge_never_waits_for_what_it_was_to_overtake() -> None:
    runs: Coalescer[str] = Coalescer(LIMITS)
    flight = runs.open("key", A, "run")
    hedge = Who("a", 2)
    assert runs.join("key", hedge) is None
    assert runs.join("key", B) is flight
    assert runs.join("key", A) is flight  # an equal segment of the same attempt
    own = runs.open("key", hedge, "own")
    assert runs.join("key", Who("c", 1)) is flight  # the older one stays the one to find
    runs.leave(flight, A)
    runs.leave(flight, A)
    assert runs.join("key", hedge) is flight  # the primary has left
    runs.close(own)
    assert len(runs) == 1


def test_an_abandoned_run_has_a_grace_time_if_it_was_shared() -> None:
    runs: Coalescer[str] = Coalescer(LIMITS)
    alone = runs.open("alone", A, "run")
    assert runs.leave(alone, A) == 0.0
    shared = runs.open("shared", A, "run")
    runs.join("shared", B)
    assert runs.leave(shared, A) is None
    assert runs.leave(shared, B) == 1.0
    assert runs.join("shared", Who("c", 1)) is shared  # in time


def test_past_the_bound_runs_are_not_shared() -> None:
    runs: Coalescer[str] = Coalescer(LIMITS)
    flights = [runs.open(key, A, key) for key in "abcd"]
    assert len(runs) == 3
    assert runs.join("d", B) is None
    assert runs.leave(flights[3], A) == 0.0
    runs.close(flights[3])
    assert len(runs) == 3
    off: Coalescer[str] = Coalescer(CoalesceLimits(runs_max=0))
    off.open("key", A, "run")
    assert off.join("key", B) is None


@pytest.mark.parametrize("bad", [{"runs_max": -1}, {"grace_s": -1.0}, {"grace_s": 11.0}])
def test_limits_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="grace_s"):
        CoalesceLimits(**bad)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "close"]),
            st.sampled_from("xyzw"),
            st.sampled_from("ab"),
            st.integers(1, 2),
        ),
        max_size=80,
    )
)
def test_waiters_and_runs_are_counted_right(events: list[tuple[str, str, str, int]]) -> None:
    runs: Coalescer[int] = Coalescer(LIMITS)
    waiting: list[tuple[Flight[int], Who]] = []
    over: list[Flight[int]] = []
    for number, (event, key, request, attempt) in enumerate(events):
        who = Who(request, attempt)
        if event == "enter":
            flight = runs.join(key, who) or runs.open(key, who, number)
            assert flight.key == key and flight not in over
            assert all(w.attempt == attempt for w in flight.waiters if w.request_id == request)
            waiting.append((flight, who))
        elif event == "leave" and waiting:
            flight, who = waiting.pop(number % len(waiting))
            grace_s = runs.leave(flight, who)
            assert (grace_s is None) == any(other is flight for other, _ in waiting)
        elif waiting:
            over.append(waiting[number % len(waiting)][0])
            runs.close(over[-1])
        assert len(runs) <= LIMITS.runs_max
        for flight, _ in waiting:
            assert len(flight.waiters) == sum(other is flight for other, _ in waiting)
