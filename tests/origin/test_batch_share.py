"""Batch work beside interactive work: it rides along, pauses, and never starves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from origin.core.batch_share import BatchRules
from origin.core.model import ServedModel
from origin.core.plan import Plan
from origin.core.scheduler import Scheduler
from origin.core.step_cost import Work
from tests.origin.build import EOS, admitted, endings, model, outcome_of_all, scheduler, spec, stepped

BASE_S, ROW_S, TOKEN_S = 0.010, 0.001, 0.0002


class Talk:
    """A scheduler whose steps cost what they cost, and a clock."""

    def __init__(self, *models: ServedModel, **rules: float) -> None:
        self.scheduler: Scheduler = scheduler(
            *models,
            batch=BatchRules(**{"step_ratio": 1.3, "read_s": 0.03, **rules}),
            batch_queue_max=100,
            tenant_share_max=1.0,
        )  # type: ignore[arg-type]
        self.now = 0.0
        self.ids = 0
        for resident in self.scheduler._residents.values():
            for count in range(400):
                work = Work(1 + count % 16, count % 3 * 20)
                resident.cost.observe(work, self.seconds(work))

    @staticmethod
    def seconds(work: Work) -> float:
        return BASE_S + ROW_S * work.rows + TOKEN_S * work.tokens

    def submit(self, count: int, *, batch: bool = False, **fields: object) -> list[int]:
        numbers = list(range(self.ids + 1, self.ids + count + 1))
        self.ids += count
        for number in numbers:
            fields = {"priority": "batch" if batch else "interactive", "arrived": self.now, **fields}
            assert self.scheduler.submit(spec(number, **fields), self.now) == []  # type: ignore[arg-type]
        return numbers

    def step(self, *, finish: frozenset[int] = frozenset()) -> Plan:
        plan = self.scheduler.plan(self.now)
        seconds = sum(self.seconds(batch.work) for batch in plan.batches)
        self.now += seconds
        self.scheduler.measured(plan, seconds)
        result = outcome_of_all(plan, 7)
        ended = outcome_of_all(plan, 7, finish="stop")
        self.scheduler.apply(result, self.now)
        for outcome in ended.outcomes:
            if outcome.sequence in finish:
                self.scheduler.apply(type(ended)((outcome,)), self.now)
        self.scheduler.check()
        return plan


def test_alone_all_batch_work_runs() -> None:
    talk = Talk(model(slots=32))
    batch = talk.submit(30, batch=True, source=(5, EOS))
    while talk.scheduler.load().queued:
        talk.step()
    assert stepped(talk.step()) == batch


def test_batch_rows_ride_along_up_to_the_ratio_and_the_others_pause() -> None:
    talk = Talk(model(slots=32))
    batch = talk.submit(16, batch=True, source=(5, EOS))
    talk.step()
    (one,) = talk.submit(1)
    talk.step()
    plan = talk.step()
    # alone 11 ms: 14.3 ms leave room for three rows of 1 ms
    assert stepped(plan) == [one, *batch[:3]]
    assert plan.batches[0].work == Work(4, 0)
    assert talk.scheduler.counts.paused_rows >= 13
    talk.step(finish=frozenset({one}))
    assert stepped(talk.step()) == batch


def test_who_was_admitted_first_goes_on_first() -> None:
    talk = Talk(model(slots=32))
    batch = talk.submit(8, batch=True, source=(5, EOS))
    talk.step()
    talk.submit(1)
    talk.step()
    assert stepped(talk.step(finish=frozenset(batch[:2])))[1:] == batch[:3]
    assert stepped(talk.step())[1:] == batch[2:5]


def test_a_beam_pauses_whole() -> None:
    talk = Talk(model(slots=32))
    wide, narrow = *talk.submit(1, batch=True, width=4), *talk.submit(1, batch=True)
    talk.step()
    (one,) = talk.submit(1)
    talk.step()
    assert stepped(talk.step()) == [one]  # four rows don't fit, and the narrow one does not pass
    assert {wide, narrow} <= set(stepped(talk.step(finish=frozenset({one})))) | set(stepped(talk.step()))


def test_newcomers_wait_while_those_who_run_are_paused() -> None:
    talk = Talk(model(slots=32))
    talk.submit(16, batch=True, source=(5, EOS))
    talk.step()
    talk.submit(1)
    late = talk.submit(1, batch=True)
    for _ in range(5):
        assert not {*admitted(talk.step())} & {*late}


def test_paused_batch_work_has_a_turn_bounded_in_seconds() -> None:
    talk = Talk(model(slots=32), step_ratio=1.0, wait_s=0.25, turn_s=0.006)
    batch = talk.submit(16, batch=True, source=(5, EOS))
    talk.step()
    talk.submit(1)
    turns = []
    while talk.now < 2.0:
        began = talk.now
        plan = talk.step()
        if riding := [number for number in stepped(plan) if number in batch]:
            assert riding == batch[:6]  # six rows of 1 ms
            turns.append(began)
    gaps = [after - before for before, after in pairwise(turns)]
    assert len(turns) >= 6 and all(0.25 <= gap <= 0.25 + 0.02 for gap in gaps)


def test_a_turn_lasts_until_its_seconds_are_spent() -> None:
    talk = Talk(model(slots=32), step_ratio=1.0, wait_s=0.25, turn_s=0.0055)
    talk.submit(1, batch=True)
    talk.step()
    talk.submit(1)
    riding = []
    while talk.now < 1.0:
        riding.append(len(stepped(talk.step())) - 1)
    assert "".join(map(str, riding)).strip("0").split("0" * 20)[0] == "11111"
    assert 3 <= sum(riding) / 5 <= 4


def test_a_steady_interactive_load_does_not_starve_batch_newcomers() -> None:
    """All slots are wanted by interactive work for ever, and no batch row fits: still batch work goes on."""
    talk = Talk(model(slots=2), step_ratio=1.0)
    talk.submit(4)
    batch = talk.submit(3, batch=True)
    age: dict[int, int] = {}
    done: list[int] = []
    while talk.now < 6.0:
        ending = frozenset(number for number, steps in age.items() if steps >= 9)
        for number in stepped(talk.step(finish=ending)):
            age[number] = age.get(number, 0) + 1
            if number in ending:
                del age[number]
                done.append(number)
                if number not in batch:
                    talk.submit(1)
    assert set(batch) <= set(done)
    assert len(done) > 60  # and interactive work hardly noticed


@pytest.mark.parametrize("slots", [1, 3])
def test_who_came_in_by_a_turn_is_not_evicted(slots: int) -> None:
    talk = Talk(model(slots=slots))
    (first,) = talk.submit(1)
    talk.step()
    (batch,) = talk.submit(1, batch=True, width=slots)
    talk.now += 0.3
    talk.step(finish=frozenset({first}))
    talk.submit(5)
    assert admitted(talk.step()) == [batch]
    for _ in range(5):
        assert stepped(talk.step()) == [batch]
    assert talk.scheduler.counts.evictions == 0


def test_one_models_batch_work_does_not_starve_anothers() -> None:
    talk = Talk(model("a", slots=8), model("b", slots=8))
    talk.submit(1, model="a@1")
    mine = talk.submit(3, batch=True, model="a@1", source=(5, EOS))
    other = talk.submit(1, batch=True, model="b@1")
    seen: dict[int, int] = {}
    while talk.now < 3.0:
        for number in stepped(talk.step()):
            seen[number] = seen.get(number, 0) + 1
    assert seen[mine[0]] > 100  # rides along
    assert seen[other[0]] >= 9  # needs a pass of its own, so it has turns


def test_reading_batch_sources_is_spread_over_steps() -> None:
    talk = Talk(model(slots=32), read_s=0.02)
    talk.submit(8, batch=True, source=(*[5] * 39, EOS))  # 8 ms each, and 1 ms a row
    assert [len(admitted(talk.step())) for _ in range(5)] == [1, 2, 2, 2, 1]


def test_expired_and_cancelled_leave_paused_rows_within_one_step() -> None:
    talk = Talk(model(slots=8), step_ratio=1.0)
    late, gone = talk.submit(1, batch=True, deadline=0.05) + talk.submit(1, batch=True)
    talk.step()
    talk.submit(1)
    talk.step()
    assert endings(talk.scheduler.cancel(gone, talk.now)) == {gone: "cancelled"}
    talk.now = 0.06
    plan = talk.step()
    assert endings(plan.effects) == {late: "expired"}
    assert set(plan.dropped) == {late, gone} and talk.scheduler.load().slots_free == 7


def test_rules_name_their_mistakes() -> None:
    for wrong in ({"step_ratio": 0.9}, {"wait_s": 0.0}, {"turn_s": -1.0}, {"evictions_max": -1}):
        with pytest.raises(ValueError, match="batch rules"):
            BatchRules(**wrong)  # type: ignore[arg-type]
