"""The scheduler as conversations: requests in, plans and effects out."""

from __future__ import annotations

import pytest

from origin.core.plan import Encode, Ended, Outcome, Produced, Refused, Result, Row
from tests.origin.build import admitted, endings, model, outcome_of_all, scheduler, spec, stepped


def test_a_sequence_from_queue_to_end() -> None:
    s = scheduler()
    assert s.submit(spec(1, arrived=1.0, stream=True), 1.0) == []
    plan = s.plan(2.0)
    assert plan.batches[0].encode == (Encode(1, (0,), (5, 6, 0), 256),)
    assert plan.batches[0].rows == (Row(1, (0,)),)
    assert s.apply(Result((Outcome(1, (7,), encode_s=0.5),)), 3.0) == [Produced(1, (7,))]
    plan = s.plan(3.0)
    assert (admitted(plan), stepped(plan)) == ([], [1])
    (end,) = s.apply(Result((Outcome(1, (8,), "stop"),)), 4.0)
    assert isinstance(end, Ended)
    assert (end.ending.reason, end.ending.ids, end.ending.steps) == ("stop", (7, 8), 2)
    assert end.ending.stages_ms == {"origin_queue": 1000.0, "encode": 500.0, "decode": 1500.0}
    assert len(s) == 0 and s.load().slots_free == 4
    s.check()


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert scheduler().plan(0.0).rows == 0


def test_only_streaming_callers_hear_of_tokens() -> None:
    s = scheduler()
    s.submit(spec(1), 0.0)
    assert s.apply(outcome_of_all(s.plan(0.0), 7), 0.0) == []


def test_one_tenant_does_not_hold_up_another() -> None:
    s = scheduler(model(slots=1), queue_max=8, tenant_quantum=9)
    for number in range(8):
        s.submit(spec(number, tenant="loud", deadline=1.0), 0.0)
    assert s.submit(spec(8, tenant="quiet", deadline=9.0), 0.0) == []
    order = []
    for _ in range(7):
        plan = s.plan(0.0)
        order += admitted(plan)
        s.apply(outcome_of_all(plan, finish="stop"), 0.0)
    assert order == [0, 8, 1, 2, 3, 4, 5]
    assert s.counts.refused_full == 2  # six of eight places, for one tenant


def test_newcomers_wait_for_company_only_while_steps_are_short() -> None:
    s = scheduler(model(slots=8))
    s.submit(spec(1), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
    for _ in range(60):
        s.measured(s.plan(0.0), 0.0005)
    for number in range(2, 62):
        s.submit(spec(number), number * 1e-5)
    taken = [admitted(s.plan(0.001 + step * 0.0005)) for step in range(4)]
    assert taken == [[], [], [], [2, 3, 4, 5, 6, 7, 8]]
    assert s.counts.held == 3


def test_interactive_before_batch_and_earliest_deadline_first() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1, priority="batch", deadline=1.0), 0.0)
    s.submit(spec(2, deadline=9.0), 0.0)
    s.submit(spec(3, deadline=5.0), 0.0)
    order = []
    for _ in range(3):
        plan = s.plan(0.0)
        order += admitted(plan)
        s.apply(outcome_of_all(plan, finish="stop"), 0.0)
    assert order == [3, 2, 1]


def test_newcomers_join_those_who_run() -> None:
    s = scheduler()
    s.submit(spec(1), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
    s.submit(spec(2), 0.0)
    plan = s.plan(0.0)
    assert (admitted(plan), stepped(plan)) == ([2], [1, 2])


def test_a_slot_freed_in_one_step_is_taken_in_the_next() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1), 0.0)
    s.submit(spec(2), 0.0)
    plan = s.plan(0.0)
    assert admitted(plan) == [1]
    s.apply(outcome_of_all(plan, 7, finish="stop"), 0.0)
    plan = s.plan(0.0)
    assert (admitted(plan), plan.dropped) == ([2], (1,))
    assert plan.batches[0].encode[0].slots == (0,)


def test_encode_tokens_are_bounded_per_step_and_in_order() -> None:
    s = scheduler(encode_tokens_per_step=512)
    s.submit(spec(1, source=(1,) * 200, draft=(1,) * 256, deadline=1.0), 0.0)
    s.submit(spec(2, source=(1,) * 57, deadline=2.0), 0.0)
    s.submit(spec(3, source=(1,) * 2, deadline=3.0), 0.0)  # would fit, but may not pass 2
    assert admitted(s.plan(0.0)) == [1]
    assert admitted(s.plan(0.0)) == [2, 3]


def test_a_beam_waits_for_all_its_slots_and_is_not_passed() -> None:
    s = scheduler(model(slots=4))
    s.submit(spec(1, deadline=1.0), 0.0)
    assert admitted(s.plan(0.0)) == [1]
    s.submit(spec(2, width=4, deadline=2.0), 0.0)
    s.submit(spec(3, deadline=3.0), 0.0)
    plan = s.plan(0.0)
    assert admitted(plan) == []
    s.apply(outcome_of_all(plan, finish="stop"), 0.0)
    plan = s.plan(0.0)
    assert admitted(plan) == [2]
    assert plan.batches[0].rows == (Row(2, (0, 1, 2, 3)),)


def test_a_full_model_does_not_hold_up_another() -> None:
    s = scheduler(model("a", slots=1), model("b", slots=1))
    s.submit(spec(1, model="a@1"), 0.0)
    s.submit(spec(2, model="a@1"), 0.0)
    s.submit(spec(3, model="b@1"), 0.0)
    plan = s.plan(0.0)
    assert admitted(plan) == [1, 3]
    assert [batch.model for batch in plan.batches] == ["a@1", "b@1"]


def test_the_queue_is_bounded_per_class_and_a_slot_is_no_queue_place() -> None:
    s = scheduler(model(slots=1), queue_max=1, batch_queue_max=1)
    s.submit(spec(1), 0.0)
    s.plan(2.0)
    assert s.submit(spec(2), 0.0) == []
    assert s.submit(spec(3), 0.0) == [Refused(3, "overloaded", retry_after_ms=2000.0)]
    assert s.submit(spec(4, priority="batch"), 0.0) == []
    assert s.submit(spec(5, priority="batch"), 0.0) == [Refused(5, "overloaded", retry_after_ms=2000.0)]
    assert len(s) == 3


def test_cancel_frees_a_running_sequence_at_once() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1), 0.0)
    s.submit(spec(2), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
    assert endings(s.cancel(1, 0.0)) == {1: "cancelled"}
    plan = s.plan(0.0)
    assert (admitted(plan), plan.dropped) == ([2], (1,))


def test_cancel_of_a_queued_or_unknown_sequence() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1), 0.0)
    s.submit(spec(2), 0.0)
    s.plan(0.0)
    assert endings(s.cancel(2, 0.0)) == {2: "cancelled"}
    assert s.cancel(2, 0.0) == [] and s.cancel(99, 0.0) == []
    assert s.load().queued == 0


def test_an_outcome_for_someone_who_left_during_the_step_is_passed_over() -> None:
    s = scheduler()
    s.submit(spec(1), 0.0)
    plan = s.plan(0.0)
    s.cancel(1, 0.0)
    assert s.apply(outcome_of_all(plan, 7, finish="stop"), 0.0) == []
    s.check()


def test_expired_leave_in_the_next_plan_whether_queued_or_running() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1, deadline=5.0), 0.0)
    s.submit(spec(2, deadline=6.0), 0.0)
    s.submit(spec(3, deadline=9.0), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
    plan = s.plan(6.0)
    assert endings(plan.effects) == {1: "expired", 2: "expired"}
    assert (admitted(plan), plan.dropped) == ([3], (1,))


def test_a_draft_is_verified_in_the_first_step_only() -> None:
    s = scheduler()
    s.submit(spec(1, draft=(7, 8)), 0.0)
    plan = s.plan(0.0)
    assert plan.batches[0].rows == (Row(1, (0,), (7, 8)),)
    s.apply(Result((Outcome(1, (7, 9), drafted=2, accepted=1),)), 0.0)
    plan = s.plan(0.0)
    assert plan.batches[0].rows == (Row(1, (0,)),)
    (end,) = s.apply(outcome_of_all(plan, finish="stop"), 0.0)
    assert isinstance(end, Ended)
    assert (end.ending.draft_tokens, end.ending.draft_accepted, end.ending.ids) == (2, 1, (7, 9))


def test_drafts_are_wanted_for_greedy_models_with_few_running() -> None:
    s = scheduler(model("a"), model("b", beam=4), drafts_running_max=1)
    assert s.load().wants_drafts == ("a@1",)
    s.submit(spec(1, model="a@1"), 0.0)
    s.submit(spec(2, model="a@1"), 0.0)
    s.plan(0.0)
    assert s.load().wants_drafts == ()


def test_cancel_all_ends_everyone() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1), 0.0)
    s.submit(spec(2), 0.0)
    s.plan(0.0)
    assert endings(s.cancel_all(1.0)) == {1: "cancelled", 2: "cancelled"}
    assert len(s) == 0
    s.check()


def test_our_own_mistakes_are_asserted() -> None:
    s = scheduler()
    s.submit(spec(1, target_tokens_max=1), 0.0)
    with pytest.raises(AssertionError):
        s.submit(spec(1), 0.0)
    s.plan(0.0)
    with pytest.raises(AssertionError):
        s.apply(Result((Outcome(1, (7, 8)),)), 0.0)
    with pytest.raises(AssertionError):
        scheduler(encode_tokens_per_step=511)
