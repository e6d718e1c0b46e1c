"""Admission: what is predicted, and what off, dark and on make of it."""

from __future__ import annotations

import pytest

from origin.core.admission import OBSERVATIONS_MIN, Line, Newcomer, time_to_finish
from origin.core.plan import Refused
from origin.core.scheduler import Scheduler
from origin.core.step_cost import StepCost, Work
from tests.origin.build import admitted, endings, model, outcome_of_all, scheduler, spec

STEP_S = 0.1


def known(row_s: float = 0.0) -> StepCost:
    cost = StepCost()
    for rows in [1, 2, 4, 8] * 50:
        cost.observe(Work(rows), STEP_S + row_s * rows)
    return cost


def finish(cost: StepCost, **fields: float) -> float:
    line = Line(
        **{"slots": 4, "rows_running": 0, "rows_waiting": 0, "tokens_waiting": 0, "steps_typical": 10.0} | fields
    )  # type: ignore[arg-type]
    seconds = time_to_finish(line, Newcomer(1, 0, 5.0), cost)
    assert seconds is not None
    return seconds


def test_alone_it_takes_its_steps() -> None:
    assert finish(known()) == pytest.approx(0.5, rel=0.02)


def test_behind_full_slots_it_waits_for_rows_to_end() -> None:
    assert finish(known(), rows_running=4) == pytest.approx(0.5 + 0.25, rel=0.02)
    assert finish(known(), rows_running=4, rows_waiting=8) == pytest.approx(0.5 + 9 * 0.25, rel=0.02)


def test_other_models_and_pausing_make_it_slower() -> None:
    assert finish(known(), others_s=0.1) == pytest.approx(1.0, rel=0.02)
    assert finish(known(), pace=0.5) == pytest.approx(1.0, rel=0.02)
    assert finish(known(), pace=0.0) < 60.0


def test_nothing_is_said_before_enough_was_measured() -> None:
    cost = StepCost()
    for _ in range(OBSERVATIONS_MIN - 1):
        cost.observe(Work(1), 9.0)
    assert time_to_finish(Line(1, 9, 9, 9, 9.0), Newcomer(1, 9, 9.0), cost) is None


def busy(mode: str, **limits: object) -> Scheduler:
    """One slot, taken; steps of 100 ms; a sequence takes about 24 of them."""
    s = scheduler(model(slots=1), admission=mode, **limits)
    s.submit(spec(0), 0.0)
    for _ in range(40):
        plan = s.plan(0.0)
        s.measured(plan, STEP_S)
        s.apply(outcome_of_all(plan, 7), 0.0)
    return s


def test_on_turns_away_at_once_who_cannot_make_it_and_says_when_to_come_back() -> None:
    s = busy("on")
    (refused,) = s.submit(spec(1, deadline=1.0), 0.0)
    assert isinstance(refused, Refused) and refused.code == "overloaded"
    assert refused.retry_after_ms is not None and 1000 < refused.retry_after_ms < 5000
    assert s.submit(spec(2, deadline=refused.retry_after_ms / 1e3 + 1.5), 0.0) == []
    assert (s.counts.forecast_late, len(s)) == (1, 2)


def test_dark_lets_in_and_counts_what_happened() -> None:
    s = busy("dark")
    assert s.submit(spec(1, deadline=1.0), 0.0) == []
    assert s.submit(spec(2, deadline=1.0), 0.0) == []
    assert s.counts.forecast_late == 2
    s.cancel(0, 0.5)
    plan = s.plan(0.5)
    assert admitted(plan) == [1]
    s.apply(outcome_of_all(plan, finish="stop"), 0.6)
    assert endings(s.plan(1.0).effects) == {2: "expired"}
    assert (s.counts.forecast_late_in_time, s.counts.forecast_missed) == (1, 0)


def test_who_expires_unforeseen_is_counted() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1, deadline=1.0), 0.0)
    s.plan(0.0)
    assert endings(s.plan(1.0).effects) == {1: "expired"}
    assert s.counts.forecast_missed == 1


def test_off_does_not_ask() -> None:
    s = busy("off")
    assert s.submit(spec(1, deadline=0.001), 0.0) == []
    assert s.counts.forecast_late == 0


def test_interactive_work_does_not_count_what_it_passes() -> None:
    s = busy("on")
    for number in range(1, 30):
        s.submit(spec(number, priority="batch"), 0.0)
    late = s.submit(spec(50, deadline=20.0, priority="batch"), 0.0)
    assert isinstance(late[0], Refused)
    assert s.submit(spec(51, deadline=20.0), 0.0) == []
