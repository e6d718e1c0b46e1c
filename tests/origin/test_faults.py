"""What the scheduler makes of broken passes, and of models that come and go."""

from __future__ import annotations

import pytest

from origin.core.plan import Effect, Encode, Ended, Fault, Outcome, Plan, Produced, Result, Row
from origin.core.scheduler import Scheduler
from tests.origin.build import EOS, endings, model, outcome_of_all, scheduler, spec, stepped


def broken(plan: Plan, *fine: int, fault: Fault = "engine") -> Result:
    """The pass of all rows broke but for those of `fine`, which yield an id."""
    return Result(
        tuple(
            Outcome(number, (7,)) if number in fine else Outcome(number, finish="failed", fault=fault)
            for number in stepped(plan)
        )
    )


def rows(plan: Plan) -> list[Row]:
    return [row for batch in plan.batches for row in batch.rows]


def encodes(plan: Plan) -> list[Encode]:
    return [new for batch in plan.batches for new in batch.encode]


def errors(effects: list[Effect]) -> dict[int, str]:
    return {e.sequence: e.ending.error for e in effects if isinstance(e, Ended) and e.ending.reason == "failed"}


def started(*numbers: int, **fields: object) -> Scheduler:
    made = scheduler(model(slots=4))
    for number in numbers:
        made.submit(spec(number, **fields), 0.0)  # type: ignore[arg-type]
    return made


def test_who_was_in_a_broken_pass_is_tried_again_alone_behind_what_it_had() -> None:
    made = started(1, 2, stream=True)
    said = made.apply(outcome_of_all(made.plan(0.0), 7), 0.0)
    assert said == [Produced(1, (7,)), Produced(2, (7,))]
    assert made.apply(broken(made.plan(0.0)), 0.0) == []
    again = made.plan(0.0)
    assert set(again.dropped) == {1, 2}, "the engine forgets them before it reads them again"
    assert [(row.sequence, row.alone) for row in rows(again)] == [(1, True), (2, True)]
    assert [(new.sequence, new.produced) for new in encodes(again)] == [(1, (7,)), (2, (7,))]
    ended = made.apply(outcome_of_all(again, 8, finish="stop"), 0.0)
    assert [end.ending.ids for end in ended if isinstance(end, Ended)] == [(7, 8), (7, 8)]
    assert (made.counts.replays, made.counts.evictions) == (2, 0)
    made.check()


def test_what_breaks_alone_while_others_go_on_is_at_fault() -> None:
    made = started(1, 2)
    made.apply(broken(made.plan(0.0)), 0.0)
    effects = made.apply(broken(made.plan(0.0), 2), 0.0)
    assert errors(effects) == {1: "internal_error"}
    assert endings(made.apply(outcome_of_all(made.plan(0.0), finish="stop"), 0.0)) == {2: "stop"}


def test_what_breaks_while_nobody_goes_on_may_do_better_elsewhere() -> None:
    made = started(1, 2)
    made.apply(broken(made.plan(0.0)), 0.0)
    assert errors(made.apply(broken(made.plan(0.0)), 0.0)) == {1: "unavailable", 2: "unavailable"}
    assert made.load().slots_free == 4


def test_what_does_not_fit_alone_is_shed_at_once() -> None:
    made = started(1, 2)
    assert errors(made.apply(broken(made.plan(0.0), 2, fault="memory"), 0.0)) == {1: "overloaded"}
    assert made.counts.replays == 0


def test_a_draft_that_was_in_a_broken_pass_is_not_tried_again() -> None:
    made = started(1, draft=(4, 5))
    first = made.plan(0.0)
    assert rows(first)[0].draft == (4, 5)
    made.apply(broken(first), 0.0)
    assert rows(made.plan(0.0))[0].draft == ()


def test_logits_that_are_no_numbers_are_not_tried_again() -> None:
    made = started(1)
    result = Result((Outcome(stepped(made.plan(0.0))[0], finish="failed"),))
    assert errors(made.apply(result, 0.0)) == {1: "internal_error"}


def test_the_log_prob_so_far_is_kept() -> None:
    made = scheduler(model())
    made.submit(spec(1), 0.0)
    made.plan(0.0)
    made.apply(Result((Outcome(1, (7,), log_prob=-2.5),)), 0.0)
    made.apply(broken(made.plan(0.0)), 0.0)
    assert encodes(made.plan(0.0))[0].log_prob == -2.5


def test_a_deadline_holds_while_one_waits_to_be_tried_again() -> None:
    made = started(1, deadline=5.0)
    made.apply(broken(made.plan(0.0)), 0.0)
    assert endings(made.plan(6.0).effects) == {1: "expired"}


def test_cancelled_while_it_waits_to_be_tried_again() -> None:
    made = started(1)
    made.apply(broken(made.plan(0.0)), 0.0)
    assert endings(made.cancel(1, 0.0)) == {1: "cancelled"}
    assert made.plan(0.0).dropped == (1,)


def test_after_a_new_start_of_the_engine_nobody_is_blamed() -> None:
    made = scheduler(model("a", slots=2), model("b", slots=2))
    made.submit(spec(1, model="a@1"), 0.0)
    made.submit(spec(2, model="b@1"), 0.0)
    made.apply(outcome_of_all(made.plan(0.0), 7), 0.0)
    made.start_over(1.0)
    assert made.load().slots_free == 4 and made.load().queued == 2
    again = made.plan(1.0)
    assert {new.sequence: new.produced for new in encodes(again)} == {1: (7,), 2: (7,)}
    assert not any(row.alone for row in rows(again)) and made.counts.replays == 0
    made.check()


# ---- models come and go ----------------------------------------------------------------------------------------------


def test_a_model_comes_and_takes_sequences() -> None:
    made = scheduler(model("a"))
    made.open(model("b", slots=2))
    made.submit(spec(1, model="b@1", source=(5, EOS)), 0.0)
    assert [batch.model for batch in made.plan(0.0).batches] == ["b@1"]
    assert made.load().slots_free == 5 and set(made.load().wants_drafts) == {"a@1", "b@1"}
    made.check()


def test_a_model_goes_when_its_last_sequence_has_ended() -> None:
    made = scheduler(model("a", slots=1), model("b"))
    for number in (1, 2):
        made.submit(spec(number, model="a@1"), 0.0)
    plan = made.plan(0.0)
    assert not made.close("a@1"), "one runs, one waits"
    made.apply(outcome_of_all(plan, finish="stop"), 0.0)
    assert not made.close("a@1"), "one waits"
    made.apply(outcome_of_all(made.plan(0.0), finish="stop"), 0.0)
    assert made.close("a@1")
    assert made.load().slots_free == 4 and made.load().wants_drafts == ("b@1",)
    assert {use.model for use in made.load().drafts} == {"b@1"}
    made.submit(spec(3, model="b@1"), 0.0)
    assert stepped(made.plan(0.0)) == [3]
    made.check()


def test_a_model_that_went_may_come_again() -> None:
    made = scheduler(model("a"))
    assert made.close("a@1")
    made.open(model("a"))
    with pytest.raises(AssertionError):
        made.open(model("a"))
