"""Sessions: what comes again, what drafts, and every bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origin.core.drafts import Earlier
from origin.core.sessions import (
    ANSWER_BYTES,
    EARLIER_MAX,
    SESSION_BYTES,
    Question,
    SessionLimits,
    Sessions,
    Way,
)

WAY = Way("m@1", "trg", 1, 256)
SIZE = ANSWER_BYTES + 4 * (3 + 1)  # of an answer with a source of three ids and a target of one


def ask(source: tuple[int, ...], *, tenant: str = "t", session: str = "s", seq: int = 0, way: Way = WAY) -> Question:
    return Question(tenant, session, seq, way, source)


def test_what_was_answered_before_is_answered_again_for_the_same_question_only() -> None:
    s = Sessions(SessionLimits())
    s.remember(ask((5, 6, 0)), (7, 8), 0.0)
    assert s.answer(ask((5, 6, 0)), 1.0) == (7, 8)
    others = [
        ask((5, 0)),
        ask((5, 6, 0), tenant="other"),
        ask((5, 6, 0), session="other"),
        ask((5, 6, 0), way=Way("m@2", "trg", 1, 256)),
        ask((5, 6, 0), way=Way("m@1", "trg", 2, 256)),
        ask((5, 6, 0), way=Way("m@1", "trg", 1, 9)),
    ]
    assert [s.answer(other, 1.0) for other in others] == [None] * len(others)
    s.check()


def earlier(s: Sessions, question: Question) -> list[tuple[int, ...]]:
    return [answer.ids for answer in s.earlier(question, 0.0)]


def test_the_most_similar_sources_come_first_the_newest_among_equals() -> None:
    s = Sessions(SessionLimits(overlap_min=0.5))
    s.remember(ask((1, 2, 3, 0)), (11,), 0.0)
    s.remember(ask((1, 2, 9, 4, 0)), (12,), 0.0, draft=(9, 9))
    s.remember(ask((1, 2, 8, 0), seq=2), (13,), 0.0)
    s.remember(ask((1, 2, 7, 0), seq=1), (14,), 0.0)
    s.remember(ask((1, 30, 31, 32, 0)), (15,), 0.0)
    first = s.earlier(ask((1, 2, 3, 4, 0)), 0.0)[0]
    assert first == Earlier((12,), draft=(9, 9))  # all but the 9
    found = earlier(s, ask((1, 2, 6, 0)))  # the first four are equally near
    assert found[:2] == [(13,), (14,)] and len(found) == EARLIER_MAX
    assert earlier(s, ask((20, 21, 22, 23, 0))) == []
    assert earlier(s, ask((1, 2, 3, 4, 0), tenant="other")) == []


def test_an_older_version_with_the_same_vocabulary_drafts_but_does_not_answer() -> None:
    s = Sessions(SessionLimits())
    s.remember(ask((5, 6, 0)), (7, 8), 0.0)
    newer, foreign, language = (Way(*who, 1, 256) for who in (("m@2", "trg"), ("m@2", "other"), ("n@1", "trg")))
    assert s.answer(ask((5, 6, 0), way=newer), 0.0) is None
    assert earlier(s, ask((5, 6, 0), way=newer)) == [(7, 8)]
    assert earlier(s, ask((5, 6, 0), way=foreign)) == earlier(s, ask((5, 6, 0), way=language)) == []


@pytest.mark.parametrize(("share", "drafted"), [(0.6, True), (0.61, False)])
def test_the_least_overlap(share: float, drafted: bool) -> None:
    s = Sessions(SessionLimits(overlap_min=share))
    s.remember(ask((1, 2, 8, 9, 0)), (7,), 0.0)
    assert bool(earlier(s, ask((1, 2, 3, 4, 0)))) == drafted  # 3 of 5


def test_a_session_expires_at_its_time_and_use_keeps_it() -> None:
    s = Sessions(SessionLimits(idle_s=10.0))
    s.remember(ask((5, 0)), (7,), 0.0)
    assert s.answer(ask((5, 0)), 9.9) == (7,)
    assert s.answer(ask((5, 0)), 19.8) == (7,)
    assert s.answer(ask((5, 0)), 29.8) is None and len(s) == 0 and s.bytes == 0
    s.remember(ask((5, 0), session="a"), (7,), 30.0)
    s.remember(ask((5, 0), session="b"), (7,), 39.0)
    s.expire(40.0)
    assert len(s) == 1 and s.answer(ask((5, 0), session="b"), 40.0) == (7,)


def test_sessions_of_a_tenant_at_the_bound() -> None:
    s = Sessions(SessionLimits(tenant_sessions_max=2))
    s.remember(ask((5, 0), tenant="other"), (7,), 0.0)
    for name in ("a", "b"):
        s.remember(ask((5, 0), session=name), (7,), 0.0)
    s.answer(ask((5, 0), session="a"), 1.0)
    s.remember(ask((5, 0), session="c"), (7,), 2.0)
    kept = [name for name in "abc" if s.answer(ask((5, 0), session=name), 3.0)]
    assert kept == ["a", "c"]
    assert s.answer(ask((5, 0), tenant="other"), 3.0) == (7,)
    s.check()


def test_answers_of_a_session_at_the_bound() -> None:
    s = Sessions(SessionLimits(session_answers_max=2))
    s.remember(ask((5, 0)), (7,), 0.0)
    s.remember(ask((6, 0)), (7,), 0.0)
    s.answer(ask((5, 0)), 0.0)
    s.remember(ask((8, 0)), (7,), 0.0)
    assert [s.answer(ask((n, 0)), 0.0) is not None for n in (5, 6, 8)] == [True, False, True]
    s.remember(ask((8, 0)), (9,), 0.0)  # the same again takes no room
    assert s.answer(ask((5, 0)), 0.0) is not None
    s.check()


def test_bytes_of_a_tenant_and_of_all_at_the_bound() -> None:
    whole = SESSION_BYTES + SIZE
    s = Sessions(SessionLimits(tenant_bytes_max=2 * whole, bytes_max=3 * whole))
    for name in "abc":
        s.remember(ask((5, 6, 0), session=name), (7,), 0.0)
    assert [s.answer(ask((5, 6, 0), session=name), 0.0) is not None for name in "abc"] == [False, True, True]
    s.remember(ask((5, 6, 0), tenant="u"), (7,), 0.0)
    assert (len(s), s.bytes) == (3, 3 * whole)
    s.remember(ask((5, 6, 0), tenant="v"), (7,), 0.0)  # now the oldest of all goes
    assert len(s) == 3 and s.answer(ask((5, 6, 0), session="b"), 0.0) is None
    s.remember(ask((5, 6, 0), tenant="w"), tuple(range(4 * whole)), 0.0)  # more than a tenant may have
    assert s.answer(ask((5, 6, 0), tenant="w"), 0.0) is None
    s.check()


IDS = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["remember", "answer", "draft", "expire"]),
        st.sampled_from("tu"),
        st.sampled_from("abcd"),
        IDS,
        st.floats(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(CALLS)
def test_any_history_keeps_the_bounds_and_tenants_apart(
    calls: list[tuple[str, str, str, tuple[int, ...], float]],
) -> None:
    """Each tenant's targets are marked, so that one that shows up elsewhere is seen."""
    limits = SessionLimits(
        idle_s=5.0, tenant_sessions_max=3, session_answers_max=2, tenant_bytes_max=2500, bytes_max=4000
    )
    s, now = Sessions(limits), 0.0
    for call, tenant, session, source, wait in calls:
        now += wait
        question = ask(source, tenant=tenant, session=session)
        marked = (ord(tenant), ord(session), *source)
        if call == "remember":
            s.remember(question, marked, now, draft=source)
        elif call == "answer":
            assert s.answer(question, now) in (None, marked)
        elif call == "draft":
            assert all(found.ids[:2] == marked[:2] for found in s.earlier(question, now))
        else:
            s.expire(now)
        s.check()


def test_limits_that_make_no_sense() -> None:
    for wrong in ({"idle_s": 0.0}, {"overlap_min": 1.5}, {"session_answers_max": 0}, {"bytes_max": 0}):
        with pytest.raises(ValueError):
            SessionLimits(**wrong)  # type: ignore[arg-type]
