"""Past answers: whose they are, which one is found, and the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from origin.core.past_answers import ANSWER_BYTES, PastAnswers, PastKey

KEY = PastKey("t", "m", "hash", (5, 6, 0))
SIZE = len("1 t 1 m hash ") + 4 * 3 + 4 * 2 + ANSWER_BYTES


def test_the_last_answer_to_the_same_source_under_the_same_vocabulary() -> None:
    past = PastAnswers(1 << 20)
    past.remember(KEY, (7, 8))
    past.remember(KEY, (9, 8))
    assert past.find(KEY) == (9, 8) and (len(past), past.bytes) == (1, SIZE)
    for other in (("u", *KEY[1:]), ("t", "n", *KEY[2:]), ("t", "m", "other", KEY.source), (*KEY[:3], (5, 0))):
        assert past.find(PastKey(*other)) == ()  # type: ignore[arg-type]


def test_the_least_recently_used_goes_first_at_the_bound() -> None:
    past = PastAnswers(2 * SIZE)
    keys = [KEY._replace(source=(n, 6, 0)) for n in range(3)]
    past.remember(keys[0], (1, 1))
    past.remember(keys[1], (1, 1))
    assert past.find(keys[0]) == (1, 1)
    past.remember(keys[2], (1, 1))
    assert [bool(past.find(key)) for key in keys] == [True, False, True] and past.bytes == 2 * SIZE
    nothing = PastAnswers(0)
    nothing.remember(KEY, (7,))
    assert nothing.find(KEY) == () and nothing.bytes == 0


@given(st.lists(st.tuples(st.sampled_from("tu"), st.integers(1, 5), st.lists(st.integers(1, 9), max_size=5))))
def test_any_history_keeps_the_bound(calls: list[tuple[str, int, list[int]]]) -> None:
    past, bound = PastAnswers(3 * SIZE), 3 * SIZE
    for tenant, source, ids in calls:
        key = KEY._replace(tenant=tenant, source=(source, 0))
        past.remember(key, ids)
        assert past.bytes <= bound and (not past.find(key) or past.find(key) == tuple(ids))
    assert past.bytes == 0 or len(past) > 0


def test_names_do_not_run_into_each_other() -> None:
    past = PastAnswers(1 << 20)
    past.remember(PastKey("a", "bc", "h", (1,)), (7,))
    assert past.find(PastKey("ab", "c", "h", (1,))) == ()
