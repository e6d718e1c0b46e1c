"""Tenants in turn: by conversation, and against random histories."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.core.fairness import TenantRing
from origin.core.sequence import Sequence
from tests.origin.build import EOS, spec


def ring(**fields: int) -> TenantRing:
    return TenantRing(**{"quantum": 64, "tenants_max": 8, "tenant_max": 1000, **fields})


def waiting(id: int, tenant: str = "", tokens: int = 8, **fields: object) -> Sequence:
    return Sequence(spec(id, tenant=tenant, source=(5,) * (tokens - 1) + (EOS,), **fields))  # type: ignore[arg-type]


def serve(r: TenantRing, count: int, blocked: frozenset[str] = frozenset()) -> list[Sequence]:
    served = []
    while len(served) < count and (sequence := r.first(blocked)) is not None:
        r.remove(sequence, served=True)
        served.append(sequence)
    return served


def test_within_a_tenant_the_earliest_deadline_goes_first() -> None:
    r = ring()
    for number, deadline in ((1, 9.0), (2, 3.0), (3, 5.0)):
        r.add(waiting(number, deadline=deadline))
    assert [s.spec.id for s in serve(r, 9)] == [2, 3, 1]


def test_a_flood_does_not_hold_up_another_tenant() -> None:
    r = ring()
    for number in range(100):
        r.add(waiting(number, "loud", deadline=1.0))
    r.add(waiting(100, "quiet", deadline=99.0))
    served = [s.spec.tenant for s in serve(r, 10)]
    assert served.index("quiet") <= 4  # after one quantum of 64, at 16 a sequence


def test_tenants_are_served_the_same_cost_not_the_same_number() -> None:
    r = ring()
    for number in range(400):
        r.add(waiting(number, "short", tokens=5))
        r.add(waiting(1000 + number, "long", tokens=50))
    cost: Counter[str] = Counter()
    for sequence in serve(r, 200):
        cost[sequence.spec.tenant] += sequence.cost
    assert abs(cost["short"] - cost["long"]) <= 64 + 100


def test_asking_changes_nothing_and_a_blocked_one_keeps_its_place() -> None:
    r = ring()
    r.add(waiting(1, "a", model="m@1"))
    r.add(waiting(2, "b", model="m@1"))
    r.add(waiting(3, "c", model="n@1"))
    assert r.first(frozenset()) is r.first(frozenset())
    assert [s.spec.id for s in serve(r, 1, frozenset({"m@1"}))] == [3]
    assert [s.spec.id for s in serve(r, 9)] == [1, 2]


def test_credit_is_not_saved_up_while_nobody_waits() -> None:
    r = ring()
    for number in range(50):  # pays little each time, and is empty in between
        r.add(waiting(number, "a", tokens=2))
        serve(r, 1)
    for number in range(100, 140):
        r.add(waiting(number, "a"))
        r.add(waiting(100 + number, "b"))
    tenants = [s.spec.tenant for s in serve(r, 16)]
    assert 4 <= tenants.count("a") <= 12


def test_who_leaves_unserved_pays_nothing_and_who_comes_back_has_paid() -> None:
    r = ring(quantum=16)
    first, second = waiting(1, "a"), waiting(2, "b")
    for sequence in (first, second, waiting(3, "a")):
        r.add(sequence)
    r.remove(first, served=False)
    assert [s.spec.id for s in serve(r, 2)] == [3, 2]
    second.admit((0,), 0.0)
    second.evict(0.0)
    assert second.cost == 0


def test_tenants_are_bounded_and_more_share_a_line() -> None:
    r = ring(tenants_max=3, tenant_max=4)
    for number in range(20):
        r.add(waiting(number, f"t{number}", deadline=float(20 - number)))
    assert r.lanes == 3
    assert r.full("t19") and r.full("new") and not r.full("t0")
    assert len(serve(r, 99)) == 20 and r.lanes == 0


def test_a_tenant_is_bounded() -> None:
    r = ring(tenant_max=2)
    r.add(waiting(1, "a"))
    assert not r.full("a")
    r.add(waiting(2, "a"))
    assert r.full("a") and not r.full("b")


def test_who_does_not_wait_cannot_leave() -> None:
    with pytest.raises(KeyError):
        ring().remove(waiting(1), served=False)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.integers(1, 8), st.integers(0, 9)), max_size=60),
    st.integers(1, 300),
    st.integers(1, 8),
)
def test_everyone_is_served_once_and_edf_holds_within_a_tenant(
    entries: list[tuple[int, int, int, int]], quantum: int, tenants_max: int
) -> None:
    r = ring(quantum=quantum, tenants_max=tenants_max)
    for number, (tenant, tokens, width, deadline) in enumerate(entries):
        r.add(waiting(number, f"t{tenant}", tokens=tokens, width=width, deadline=float(deadline)))
    served = serve(r, len(entries) + 1)
    assert sorted(s.spec.id for s in served) == list(range(len(entries)))
    if tenants_max > 6:
        for tenant in range(6):
            mine = [s.order for s in served if s.spec.tenant == f"t{tenant}"]
            assert mine == sorted(mine)
