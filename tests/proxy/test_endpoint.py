"""What outcomes teach: about an edge's cost, its limit, its health, and what is usual in its pool."""

from __future__ import annotations

import pytest

from nearsay.traffic.concurrency import ConcurrencyRules
from proxy.core.endpoint import Endpoint, Outcome
from proxy.core.limits import AttemptLimits
from proxy.core.pool import UNKNOWN_PATIENCE_S, Pool, Work

from .test_attempts import LIMITS, edge

SHORT = Work.of("en-de", "auto", "interactive", 50)
STREAM = Work.of("en-de", "auto", "interactive", 50, streamed=True)
USUAL_S = 0.01


def pool_of(*names: str, limits: AttemptLimits = LIMITS) -> list[Endpoint]:
    """Edges of a pool that knows what is usual."""
    pool = Pool(limits, 0.0)
    edges = [edge(name, pool=pool) for name in names]
    for index in range(200):
        edges[index % len(edges)].begin(SHORT, "auto", 0.0).end("ok", USUAL_S)
    return edges


def run(
    one: Endpoint,
    outcome: Outcome,
    took_s: float,
    *,
    work: Work = SHORT,
    times: int = 1,
    apart_s: float = 0.0,
    heard: bool = False,
) -> list[str]:
    """What the ends of so many attempts meant, one begun `apart_s` after the other."""
    events = []
    for number in range(times):
        began = 1.0 + number * apart_s
        permit = one.begin(work, work.tier, began)
        permit.heard = heard
        events.append(permit.end(outcome, began + took_s))
    return events


def test_a_permit_ends_once() -> None:
    permit = edge("a").begin(SHORT, "auto", 0.0)
    permit.end("ok", 1.0)
    with pytest.raises(AssertionError):
        permit.end("ok", 1.0)


def test_outcomes_feed_the_cost_as_they_should() -> None:
    def load_after(outcome: Outcome) -> float:
        one = edge("a")
        run(one, outcome, 0.01)
        assert one.in_flight == 0
        return one.load("auto", 1.01)

    assert load_after("ok") == load_after("late") == pytest.approx(0.01)
    assert load_after("failed") == load_after("refused") == 1.0  # failing fast isn't being fast
    assert load_after("ignored") == 0.0


def test_an_attempt_given_up_early_does_not_make_its_edge_look_fast() -> None:
    one = edge("a")
    run(one, "ok", 0.1)
    before = one.load("auto", 1.1)
    one.begin(SHORT, "auto", 1.1).end("late", 1.101)
    assert one.load("auto", 1.101) == pytest.approx(before, rel=0.01)


def test_a_long_text_does_not_make_its_edge_look_slow() -> None:
    short, long = edge("a"), edge("b")
    run(short, "ok", 0.02, work=Work.of("en-de", "edge", "interactive", 50))
    run(long, "ok", 2.0, work=Work.of("en-de", "edge", "interactive", 12_800))
    assert long.load("edge", 3.0) == pytest.approx(short.load("edge", 1.02))
    assert long.load("origin", 3.0) == 0.0  # an estimate of its own


@pytest.mark.parametrize("outcome", ["failed", "ok", "late"])
def test_failing_or_slow_edges_are_ejected(outcome: Outcome) -> None:
    slow, *_ = pool_of("a", "b", "c")
    rules = LIMITS.ejection
    events = run(slow, outcome, 20 * USUAL_S, times=rules.bad_in_a_row + 1, apart_s=rules.bad_for_s / 5)
    assert events == ["", "", "", "", "", "ejected"]


@pytest.mark.parametrize(
    ("outcome", "took_s", "work"),
    [
        ("ignored", 5.0, SHORT),  # the client erred or left
        ("refused", 0.001, SHORT),  # no room isn't illness
        ("late", 0.5 * USUAL_S, SHORT),  # a deadline that nobody could meet
        ("ok", 2 * USUAL_S, SHORT),  # not fast, but no outlier
        ("ok", 5.0, STREAM),  # a slow reader
        ("late", 5.0, STREAM),
    ],
)
def test_what_is_not_the_edges_fault_ejects_nobody(outcome: Outcome, took_s: float, work: Work) -> None:
    one, *_ = pool_of("a", "b", "c")
    assert set(run(one, outcome, took_s, work=work, times=50, apart_s=0.1, heard=True)) == {""}


def test_a_silent_edge_is_ejected_before_anything_is_known() -> None:
    pool = Pool(LIMITS, 0.0)
    one, *_ = [edge(name, pool=pool) for name in "abc"]
    assert set(run(one, "late", UNKNOWN_PATIENCE_S - 0.1, times=9, apart_s=0.2)) == {""}
    assert "ejected" in run(one, "late", UNKNOWN_PATIENCE_S, times=9, apart_s=0.2)
    silent = edge("a", pool=Pool(LIMITS, 0.0))
    silent.pool.ejector.join(0.0)
    assert "ejected" in run(silent, "late", UNKNOWN_PATIENCE_S, work=STREAM, times=9, apart_s=0.2)  # not a word


def test_the_tail_stays_known_although_it_is_cut_off() -> None:
    """Answers that hedges beat count with the time that they had taken: the percentile does not creep down."""
    one, *_ = pool_of("a", "b")
    before = one.pool.latencies.quantile(SHORT.kind, 0.97, 1.0)
    assert before is not None
    for _ in range(50):
        run(one, "ok", USUAL_S, times=19)
        run(one, "late", 1.5 * USUAL_S)
    after = one.pool.latencies.quantile(SHORT.kind, 0.97, 1.0)
    assert after is not None and after > before


def test_a_limit_follows_the_time_in_queues_and_refusals() -> None:
    limits = AttemptLimits(concurrency=ConcurrencyRules(limit_first=8, limit_min=2, update_s=0.01, samples_min=4))
    one = edge("a", pool=Pool(limits, 0.0))
    now = 0.0

    def answers(queued_share: float, work: Work = SHORT) -> int:
        nonlocal now
        for _ in range(100):
            permits = [one.begin(work, work.tier, now) for _ in range(8)]
            now += 0.02
            for permit in permits:
                permit.end("ok", now, queued_s=queued_share * 0.02)
        return one.limit(work.tier)

    assert answers(0.9) < 8
    assert answers(0.0) > 8
    grown = one.limit("auto")
    assert answers(0.9, Work.of("en-de", "auto", "interactive", 5_000)) == grown  # it queued behind itself
    assert answers(0.9, Work.of("en-de", "origin", "interactive", 50)) < 8  # and the origin's queue is another one
    assert one.limit("auto") == grown
    run(one, "refused", 0.0, times=5)
    assert one.limit("auto") < grown
