from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.ejection import EjectionRules, Ejector, Member, panics, slow_from_s
from nearsay.traffic.mode import Mode

RULES = EjectionRules()


def pool(members: int = 5, mode: Mode = "on") -> tuple[Ejector, list[Member]]:
    ejector = Ejector(EjectionRules(mode=mode))
    return ejector, [ejector.join(0.0) for _ in range(members)]


def fail(ejector: Ejector, member: Member, now: float = 0.0) -> str:
    """As many bad outcomes in a row as it takes, the last one at `now`."""
    ejector.observe(member, True, now - RULES.bad_for_s)
    return [ejector.observe(member, True, now) for _ in range(RULES.bad_in_a_row - 1)][-1]


def test_what_breaks_at_one_instant_is_one_event() -> None:
    ejector, [one, *_] = pool()
    assert not any(ejector.observe(one, True, 1.0) for _ in range(15))
    assert ejector.observe(one, True, 1.0 + RULES.bad_for_s) == "ejected"


def test_failing_in_a_row_ejects_and_a_good_outcome_between_does_not() -> None:
    ejector, [one, two, *_] = pool()
    for _ in range(10):
        ejector.observe(one, True, 0.0)
        ejector.observe(one, False, 0.0)
    assert ejector.out == 0
    assert fail(ejector, two) == "ejected"
    assert ejector.is_out(two) and not ejector.is_out(one)


def test_a_bad_share_far_above_the_pools_ejects_without_a_row() -> None:
    ejector, [one, *others] = pool()
    events = []
    for number in range(60):
        events.append(ejector.observe(one, number % 2 == 0, number / 10))
        for other in others:
            ejector.observe(other, number % 20 == 0, number / 10)
    assert events.count("ejected") == 1
    assert ejector.out == 1


def test_where_everything_fails_nobody_is_an_outlier() -> None:
    ejector, members = pool()
    for number in range(200):
        for member in members:
            ejector.observe(member, number % 2 == 0, number / 10)
    assert ejector.out == 0


def test_a_stall_in_a_hundred_is_no_reason() -> None:
    ejector, members = pool()
    for number in range(5000):
        ejector.observe(members[number % 5], number % 100 == 0, number / 100)
    assert ejector.out == 0


def test_at_most_half_of_the_pool_is_out() -> None:
    for count, most in ((1, 0), (2, 1), (3, 1), (5, 2)):
        ejector, members = pool(count)
        for member in members:
            fail(ejector, member)
        assert ejector.out == most


def test_panic_when_less_than_half_is_left() -> None:
    assert not panics(2, 4, RULES) and panics(1, 4, RULES)
    assert not panics(1, 2, RULES) and panics(0, 1, RULES)


def test_one_request_finds_out_and_times_grow() -> None:
    ejector, [one, *_] = pool()
    fail(ejector, one)
    now, waits = 0.0, []
    for _ in range(8):
        assert not ejector.begin(one, now)
        waits.append(one.until - now)
        now = one.until
        assert ejector.due(one, now) and ejector.begin(one, now)
        assert not ejector.due(one, now) and not ejector.begin(one, now)  # one at a time
        assert ejector.end_probe(one, True, now) == "ejected"
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_good_probe_readmits_and_health_is_forgiven_with_time() -> None:
    ejector, [one, *_] = pool()

    def out_and_back(now: float) -> float:
        fail(ejector, one, now)
        out_s = one.until - now
        assert ejector.begin(one, one.until)
        assert ejector.end_probe(one, False, one.until) == "readmitted"
        assert not ejector.is_out(one)
        return out_s

    assert [out_and_back(0.0), out_and_back(10.0), out_and_back(20.0)] == [2.0, 4.0, 8.0]
    assert out_and_back(28.0 + RULES.forget_s) == 2.0


def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    ejector, [one, *_] = pool()
    fail(ejector, one)
    assert ejector.begin(one, 2.0)
    assert ejector.end_probe(one, None, 2.5) == ""
    assert ejector.is_out(one) and ejector.due(one, 2.5)


def test_requests_under_way_when_it_was_ejected_change_nothing() -> None:
    ejector, [one, *_] = pool()
    fail(ejector, one)
    for bad in (True, False):
        assert ejector.observe(one, bad, 0.1) == ""
    assert one.until == 2.0 and ejector.is_out(one)


def test_dark_counts_and_leaves_nobody_out_and_off_does_nothing() -> None:
    ejector, [one, *_] = pool(mode="dark")
    assert fail(ejector, one) == "ejected"
    assert not ejector.is_out(one) and not ejector.due(one, 9.0)
    assert ejector.begin(one, 9.0)  # an ordinary request, which finds out on its way
    assert ejector.end_probe(one, False, 9.0) == "readmitted"
    ejector, [one, *_] = pool(mode="off")
    assert fail(ejector, one) == ""
    assert ejector.out == 0


def test_a_member_that_leaves_counts_no_more() -> None:
    ejector, members = pool(4)
    fail(ejector, members[0])
    ejector.leave(members[0])
    assert ejector.out == 0
    assert fail(ejector, members[1]) == "ejected"
    assert fail(ejector, members[2]) == ""  # half of three is one


def test_slow_is_many_times_the_usual_and_more_than_a_hiccup() -> None:
    assert slow_from_s(0.001, RULES) == pytest.approx(0.051)
    assert slow_from_s(0.1, RULES) == pytest.approx(0.5)


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["good", "bad", "nothing"]), st.floats(0, 3)), max_size=200),
)
def test_whatever_happens_the_bounds_hold(count: int, steps: list[tuple[int, str, float]]) -> None:
    ejector, members = pool(count)
    probes: list[Member] = []
    now = 0.0
    for number, outcome, elapsed in steps:
        now += elapsed
        member = members[number % count]
        out_since = member.until if member.state == "out" else None
        if member in probes:
            probes.remove(member)
            ejector.end_probe(member, {"good": False, "bad": True, "nothing": None}[outcome], now)
        elif ejector.begin(member, now):
            assert out_since is not None and now >= out_since
            probes.append(member)
        elif outcome != "nothing":
            ejector.observe(member, outcome == "bad", now)
        assert ejector.out <= RULES.ejected_share_max * count
        assert [m for m in members if m.state == "probed"] == sorted(probes, key=members.index)
        assert all(0 <= m.until - now <= RULES.ejection_s_max for m in members if m.state == "out" and m.until > now)


@pytest.mark.parametrize("bad", [{"bad_in_a_row": 0}, {"ejection_s": 90.0}, {"ejected_share_max": 1.0}])
def test_rules_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        EjectionRules(**bad)  # type: ignore[arg-type]
