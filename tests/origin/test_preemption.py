"""Batch sequences that lose their slots to interactive ones, and come back: by conversation, and with real decoding."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origin.core.batch_share import BatchRules
from origin.core.plan import Encode, Outcome, Result, Row
from origin.core.preemption import victims
from origin.core.sequence import Sequence
from tests.origin import tiny
from tests.origin.build import admitted, endings, model, outcome_of_all, scheduler, spec, stepped
from tests.origin.test_torch_engine import MODELS, PLAIN, SOURCES, each_model, log_prob, right

# ---- conversations ---------------------------------------------------------------------------------------------------


def test_eviction_and_resumption() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1, priority="batch", stream=True), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 1.0)
    s.apply(outcome_of_all(s.plan(1.0), 8), 2.0)
    s.submit(spec(2), 2.0)
    plan = s.plan(2.0)
    assert (admitted(plan), stepped(plan), plan.dropped) == ([2], [2], (1,))
    assert (s.load().queued, s.load().running) == (1, 1)
    s.apply(outcome_of_all(plan, 9, finish="stop"), 3.0)
    plan = s.plan(3.0)
    assert plan.batches[0].encode == (Encode(1, (0,), (5, 6, 0), 256, produced=(7, 8)),)
    assert plan.batches[0].rows == (Row(1, (0,)),)
    assert plan.batches[0].work == (1, 5)
    effects = s.apply(Result((Outcome(1, (9,), "stop", encode_s=0.5),)), 5.0)
    (end,) = [e for e in effects if e.sequence == 1]
    assert end.ending.ids == (7, 8, 9)  # type: ignore[union-attr]
    assert end.ending.stages_ms == {"origin_queue": 1000.0, "encode": 500.0, "decode": 3500.0}  # type: ignore[union-attr]
    assert (s.counts.evictions, s.counts.resumes) == (1, 1)


def test_a_draft_is_not_tried_again_after_an_eviction() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1, priority="batch", draft=(7, 8)), 0.0)
    s.apply(Result((Outcome(1, (7, 9), drafted=2, accepted=1),)) if s.plan(0.0).rows else Result(), 0.0)
    s.submit(spec(2), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), finish="stop"), 0.0)
    plan = s.plan(0.0)
    assert plan.batches[0].rows == (Row(1, (0,)),) and plan.batches[0].encode[0].produced == (7, 9)


def running(*produced: int, **fields: object) -> list[Sequence]:
    sequences = []
    for number, count in enumerate(produced):
        sequence = Sequence(spec(number, priority="batch"))
        sequence.admit((number,), 0.0)
        sequence.produced = [7] * count
        sequences.append(sequence)
    return sequences


def test_those_with_the_least_to_replay_go_first_and_the_newest_of_them() -> None:
    assert [s.spec.id for s in victims(running(9, 2, 5, 2), 3, 1)] == [3, 1, 2]


def test_nobody_leaves_when_it_would_not_be_enough() -> None:
    assert victims(running(1, 1), 3, 1) == []


def test_nobody_leaves_too_often_nor_who_is_kept() -> None:
    tired, kept, fine = running(0, 0, 9)
    tired.evict(0.0)
    tired.admit((0,), 0.0)
    kept.kept = True
    everyone = [tired, kept, fine]
    assert victims(everyone, 1, 1) == [fine] and victims(everyone, 1, 2) == [tired]
    assert victims(everyone, 2, 1) == [] and victims(everyone, 1, 0) == []


def beam(number: int, width: int, steps: int) -> Sequence:
    made = Sequence(spec(number, priority="batch", width=width))
    made.admit(tuple(range(10 * number, 10 * number + width)), 0.0)
    made.steps = steps
    return made


def test_beams_lose_their_steps_so_they_leave_last_and_take_nobody_with_them() -> None:
    greedy, young, old = running(9)[0], beam(1, 2, steps=3), beam(2, 4, steps=8)
    everyone = [old, young, greedy]
    assert victims(everyone, 1, 1) == [greedy]
    assert victims(everyone, 2, 1) == [young]  # enough by itself
    assert victims(everyone, 3, 1) == [greedy, young]
    assert victims(everyone, 4, 1) == [old]
    assert victims(everyone, 7, 1) == [greedy, young, old] and victims(everyone, 8, 1) == []


def test_an_evicted_beam_starts_again_and_what_it_lost_is_counted() -> None:
    s = scheduler(model(slots=4))
    s.submit(spec(1, priority="batch", width=4), 0.0)
    for _ in range(3):
        s.apply(outcome_of_all(s.plan(0.0)), 0.0)
    s.submit(spec(2), 0.0)
    plan = s.plan(0.0)
    assert (admitted(plan), plan.dropped, s.counts.row_steps_lost) == ([2], (1,), 12)
    s.apply(outcome_of_all(plan, finish="stop"), 0.0)
    assert admitted(s.plan(0.0)) == [1]
    (end,) = s.apply(Result((Outcome(1, (7, 8), "stop"),)), 1.0)
    assert end.ending.steps == 1  # type: ignore[union-attr]
    s.check()


def test_interactive_work_takes_no_slots_from_interactive_work() -> None:
    s = scheduler(model(slots=1))
    s.submit(spec(1), 0.0)
    s.plan(0.0)
    s.submit(spec(2, deadline=1.0), 0.0)
    assert admitted(s.plan(0.0)) == []


def test_an_interactive_beam_evicts_as_many_as_it_needs() -> None:
    s = scheduler(model(slots=4))
    for number in range(1, 4):
        s.submit(spec(number, priority="batch"), 0.0)
    s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
    s.submit(spec(4, width=3), 0.0)
    plan = s.plan(0.0)
    assert (admitted(plan), plan.dropped) == ([4], (3, 2))
    s.check()


def test_an_evicted_sequence_can_be_cancelled_and_expire() -> None:
    s = scheduler(model(slots=1))
    for number, deadline in ((1, 50.0), (2, 5.0)):
        s.submit(spec(number, priority="batch", deadline=deadline), 0.0)
        s.apply(outcome_of_all(s.plan(0.0), 7), 0.0)
        s.submit(spec(10 + number), 0.0)
        s.plan(0.0)
        s.cancel(10 + number, 0.0)
    (end,) = s.cancel(1, 0.0)
    assert end.ending.ids == (7,)  # type: ignore[union-attr]
    assert endings(s.plan(5.0).effects) == {2: "expired"} or endings(s.plan(5.0).effects) == {}
    assert len(s) == 0
    s.check()


def test_the_batch_queue_takes_back_the_evicted_when_it_is_full() -> None:
    s = scheduler(model(slots=2), batch_queue_max=2, tenant_share_max=1.0)
    for number in range(2):
        s.submit(spec(number, priority="batch"), 0.0)
    s.plan(0.0)
    for number in range(2, 4):
        s.submit(spec(number, priority="batch"), 0.0)
    s.submit(spec(4, width=2), 0.0)
    s.plan(0.0)
    assert s.load().queued == 4
    assert s.submit(spec(5, priority="batch"), 0.0) != []


# ---- real decoding ---------------------------------------------------------------------------------------------------

NEVER_RIDE = BatchRules(step_ratio=1.0)


@each_model
@pytest.mark.parametrize("evict_after", [1, 2, 5])
def test_evicted_and_resumed_the_ids_are_those_of_plain_greedy(name: str, evict_after: int) -> None:
    origin = tiny.Origin(MODELS[name], slots=3)
    batch = [origin.submit(source, priority="batch") for source in SOURCES[:3]]
    for _ in range(evict_after):
        origin.step()
    interactive = [origin.submit(source) for source in SOURCES[3:6]]
    ended = origin.finish()
    for number, ids in zip(batch + interactive, PLAIN[name], strict=False):
        right(ended[number], ids, MODELS[name])
    assert origin.scheduler.counts.evictions == origin.scheduler.counts.resumes > 0


@each_model
def test_a_beam_that_started_again_ends_the_same(name: str) -> None:
    alone = tiny.Origin(MODELS[name], slots=4)
    number = alone.submit(SOURCES[1], width=4)
    expected = alone.finish()[number]
    origin = tiny.Origin(MODELS[name], slots=4)
    batch = origin.submit(SOURCES[1], priority="batch", width=4)
    origin.step()
    origin.step()
    other = origin.submit(SOURCES[0])
    ended = origin.finish()
    assert (ended[batch].ids, ended[batch].steps) == (expected.ids, expected.steps)
    assert origin.scheduler.counts.row_steps_lost == 8
    right(ended[other], PLAIN[name][0], MODELS[name])


@each_model
def test_a_replay_takes_one_pass(name: str) -> None:
    longest = max(range(12), key=lambda at: len(PLAIN[name][at]))
    origin = tiny.Origin(MODELS[name], slots=1)
    number = origin.submit(SOURCES[longest], priority="batch")
    for _ in range(4):
        origin.step()
    other = origin.submit(SOURCES[0])
    ending = origin.finish()[number]
    right(ending, PLAIN[name][longest], MODELS[name])
    assert ending.steps == len(ending.ids) + (ending.reason == "stop")
    right(origin.ended[other], PLAIN[name][0], MODELS[name])


@each_model
@pytest.mark.parametrize("width", [1, 2])
def test_paused_in_the_slot_the_ids_are_the_same(name: str, width: int) -> None:
    """Beams and greedy sequences skip steps between other rows of the cache."""
    alone = tiny.Origin(MODELS[name], slots=12)
    wanted = [alone.submit(source, width=width) for source in SOURCES[:3]]
    expected = [alone.finish()[number].ids for number in wanted]
    origin = tiny.Origin(MODELS[name], slots=12, batch=NEVER_RIDE)
    batch = [origin.submit(source, priority="batch", width=width) for source in SOURCES[:3]]
    interactive = []
    for at in range(3, 9):
        origin.step()
        interactive.append(origin.submit(SOURCES[at]))
        origin.step()
    ended = origin.finish()
    assert [ended[number].ids for number in batch] == expected
    assert origin.scheduler.counts.paused_rows > 0 and origin.scheduler.counts.evictions == 0
    for number, ids in zip(interactive, PLAIN[name][3:], strict=False):
        right(ended[number], ids, MODELS[name])


def test_log_prob_survives_an_eviction() -> None:
    made = MODELS["attention"]
    origin = tiny.Origin(made, slots=1)
    number = origin.submit(SOURCES[1], priority="batch", want_log_prob=True)
    origin.step()
    origin.step()
    origin.submit(SOURCES[0])
    ending = origin.finish()[number]
    assert origin.scheduler.counts.evictions == 1
    assert ending.log_prob == pytest.approx(log_prob(made, SOURCES[1], ending), abs=1e-3)


@cache
def beam_ids(name: str, which: int) -> tuple[int, ...]:
    origin = tiny.Origin(MODELS[name], slots=2)
    number = origin.submit(SOURCES[which], width=2)
    return origin.finish()[number].ids


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 4), st.booleans(), st.integers(0, 24), st.booleans()), max_size=16
    ),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([1.0, 1.01, 1.3]),
)
def test_any_history_of_preemptions(
    arrivals: list[tuple[int, int, bool, int, bool]], name: str, step_ratio: float
) -> None:
    """Both classes join between steps, drafted and not, narrow and wide, on few slots: paused, evicted, resumed, the
    ids are those of an undisturbed run."""
    origin = tiny.Origin(MODELS[name], slots=3, batch=BatchRules(step_ratio=step_ratio, evictions_max=9))
    wanted = {}
    for which, steps_before, batch, right_ids, wide in arrivals:
        for _ in range(steps_before):
            origin.step()
        draft = (*PLAIN[name][which][:right_ids], 4) if right_ids % 2 and not wide else ()
        number = origin.submit(
            SOURCES[which], draft=draft, priority="batch" if batch else "interactive", width=1 + wide
        )
        wanted[number] = (which, wide)
    ended = origin.finish()
    for number, (which, wide) in wanted.items():
        if wide:
            assert ended[number].ids == beam_ids(name, which)
        else:
            right(ended[number], PLAIN[name][which], MODELS[name])
