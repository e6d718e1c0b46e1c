"""When drafts pay, and the histogram of how much of them stood."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from origin.core.draft_len import ACCEPT_LENGTHS, DRIFT, EDGE, DraftRule, DraftRules
from origin.core.plan import Outcome
from origin.core.sequence import Sequence
from tests.origin.build import model, outcome_of_all, scheduler, spec


def learned(passes: int, fed: int, pass_tokens: float = 16.0) -> DraftRule:
    """A rule that has seen many sequences of 10 ids."""
    rule = DraftRule(pass_tokens)
    for _ in range(1000):
        rule.note_drafted(10, passes, fed)
    return rule


def test_good_drafts_pay_at_a_larger_batch_than_bad_ones() -> None:
    good, bad = learned(2, 12), learned(9, 40)
    assert good.pays(60) and not good.pays(70)  # n * 0.2 < 0.8 * 16
    assert not bad.pays(0)  # saves 1.6 tokens' worth of passes and reads 3 more
    assert bad.passes > 0.89 and bad.fed > 3.9


def test_a_device_on_which_passes_are_dear_verifies_more() -> None:
    assert learned(5, 20, pass_tokens=300.0).pays(100) and not learned(5, 20, pass_tokens=10.0).pays(10)


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0.05, 1), st.floats(1, 5)), max_size=60))
def test_pays_up_to_some_batch_and_never_again(ends: list[tuple[int, float, float]]) -> None:
    rule = DraftRule(16.0)
    for ids, passes, fed in ends:
        rule.note_drafted(ids, round(ids * passes) or 1, round(ids * fed))
    paying = [rule.pays(running) for running in range(80)]
    assert paying == sorted(paying, reverse=True)


def test_a_rule_that_said_no_asks_again_some_day() -> None:
    rule = learned(10, 40)
    assert not rule.pays(0)
    for _ in range(10 * DRIFT):
        rule.note_plain()
    assert rule.pays(0)


def test_models_and_sources_are_apart() -> None:
    rules = DraftRules([model("a"), model("b")], running_max=16)
    for number in range(200):
        bad = Sequence(spec(number, model="a@1", draft=(1,)))
        bad.produced, bad.steps, bad.drafted = [5] * 9, 10, 40
        rules.note_end(bad)
    assert not rules.pay("a@1", EDGE, 0)
    assert rules.pay("a@1", "session", 0) and rules.pay("b@1", EDGE, 0)
    assert not rules.pay("b@1", EDGE, 17)


def test_accept_lengths_fall_into_buckets() -> None:
    rules = DraftRules([model()], running_max=16)
    one = spec(1, draft=(1,))
    for accepted in (0, 1, 2, 3, 4, 5, 33, 256):
        rules.note(one, Outcome(1, (1,), drafted=256, accepted=accepted))
    rules.note(one, Outcome(1, (1,)))  # no draft, no entry
    edge = next(use for use in rules.use() if use.source == EDGE)
    assert edge.passes == (1, 1, 1, 2, 1, 0, 0, 2) and len(edge.passes) == len(ACCEPT_LENGTHS) + 1


def test_the_scheduler_leaves_drafts_aside_when_they_do_not_pay() -> None:
    s = scheduler(model(slots=8), drafts_running_max=1)
    for number in range(1, 4):
        s.submit(spec(number, draft=(5, 6)), 0.0)
        plan = s.plan(0.0)
        assert plan.batches[0].rows[-1].draft == ((5, 6) if number < 3 else ())
        s.apply(outcome_of_all(plan, 7), 0.0)
    (edge,) = [use for use in s.load().drafts if use.source == EDGE]
    assert edge.untried == 1 and s.load().wants_drafts == ()
