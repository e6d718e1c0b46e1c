from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.gcra import Gcra
from nearsay.wire.errors import RateLimited
from nearsay.wire.messages import Priority
from proxy.core.ledger import Field, Ledger, memory_bytes
from proxy.core.quota import FULL_RETRY_MS, LOOK_S, Permit, Quotas
from proxy.core.routing_config import Tenant

ROWS = 5
NOW = 1000.0


def quotas(tenant: Tenant, count: int = 1) -> list[Quotas]:
    """Several processes with the limits of tenant "a"."""
    memory = bytearray(memory_bytes(ROWS))
    return [Quotas({"a": tenant}, Ledger(memory, rows=ROWS, row=row)) for row in range(count)]


def one(tenant: Tenant) -> Quotas:
    return quotas(tenant)[0]


def refused(of: Quotas, priority: Priority = "interactive", chars: int = 1, now: float = NOW) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        of.admit("a", priority, chars, now)
    return caught.value


def admitted(of: Quotas, count: int, priority: Priority = "interactive", chars: int = 1, now: float = NOW) -> int:
    """How many of `count` requests were let in; they end at once."""
    taken = 0
    for _ in range(count):
        try:
            of.admit("a", priority, chars, now).end()
        except RateLimited:
            continue
        taken += 1
    return taken


def test_who_has_no_limits_is_asked_nothing() -> None:
    free = one(Tenant())
    assert free.admit("a", "interactive", 10**9, NOW) == Permit("interactive")
    assert free.admit("stranger", "batch", 10**9, NOW) == Permit("batch")
    assert free.headers("a", "interactive", NOW) == free.headers("stranger", "batch", NOW) == {}


def test_requests_and_characters_each_have_a_rate_and_a_burst() -> None:
    for tenant, chars in ((Tenant(requests_per_s=2.0), 500), (Tenant(chars_per_s=100.0), 50)):
        of = one(tenant)
        assert admitted(of, 100, chars=chars) == 20
        assert admitted(of, 100, chars=chars, now=NOW + 2.0) == 4


def test_a_refusal_says_which_limit_and_when_to_come_again() -> None:
    of = one(Tenant(requests_per_s=2.0, chars_per_s=1e6))
    admitted(of, 20)
    error = refused(of)
    assert (error.code, error.policy, error.retry_after_ms) == ("rate_limited", "requests", 500.0)
    assert "20 requests in 10 s" in error.detail
    assert error.retry_after_ms is not None
    of.admit("a", "interactive", 1, NOW + error.retry_after_ms / 1000.0)


def test_the_limit_that_holds_longest_is_the_one_named() -> None:
    of = one(Tenant(requests_per_s=1.0, chars_per_s=10.0))
    admitted(of, 10, chars=10)
    assert refused(of, chars=100).policy == "chars"


def test_nothing_is_charged_for_what_is_refused() -> None:
    of = one(Tenant(requests_per_s=1.0, chars_per_s=100.0, burst_s=1.0))
    of.admit("a", "interactive", 100, NOW)
    for _ in range(50):
        refused(of)
    assert admitted(of, 1, chars=100, now=NOW + 1.0) == 1


def test_requests_at_once_are_bounded_and_an_end_makes_room_once() -> None:
    of = one(Tenant(concurrency_max=2))
    permits = [of.admit("a", "interactive", 1, NOW) for _ in range(2)]
    error = refused(of)
    assert (error.policy, error.retry_after_ms) == ("concurrency", FULL_RETRY_MS)
    permits[0].end()
    permits[0].end()
    of.admit("a", "interactive", 1, NOW)
    refused(of)


def test_bulk_work_over_the_limits_is_served_as_batch_before_it_is_refused() -> None:
    of = one(Tenant(chars_per_s=100.0, bulk_chars_min=500))
    first, second = (of.admit("a", "interactive", 1000, NOW) for _ in range(2))
    assert (first.priority, first.why) == ("interactive", "")
    assert (second.priority, second.why) == ("batch", "demoted")
    assert refused(of, chars=1000).policy == "batch-chars"


def test_short_interactive_work_is_never_demoted() -> None:
    of = one(Tenant(requests_per_s=1.0, bulk_chars_min=500))
    admitted(of, 10)
    assert refused(of, chars=499).policy == "requests"
    assert of.admit("a", "interactive", 500, NOW).why == "demoted"


def test_a_class_never_uses_what_the_other_has() -> None:
    of = one(Tenant(requests_per_s=1.0, concurrency_max=20))
    assert admitted(of, 100, "batch") == 10
    assert refused(of, "batch").policy == "batch-requests"
    assert admitted(of, 100) == 10


def test_batch_may_have_more_than_interactive() -> None:
    of = one(Tenant(requests_per_s=1.0, concurrency_max=3, batch_ratio=2.5))
    assert admitted(of, 100, "batch") == 25
    of = one(Tenant(concurrency_max=3, batch_ratio=2.5))
    permits = [of.admit("a", "batch", 1, NOW) for _ in range(8)]
    refused(of, "batch")
    assert len(permits) == 8


def test_a_capped_tenant_is_served_as_batch_with_or_without_limits() -> None:
    for tenant in (Tenant(priority_max="batch"), Tenant(priority_max="batch", requests_per_s=1.0)):
        assert one(tenant).admit("a", "interactive", 1, NOW).why == "capped"
        assert one(tenant).admit("a", "batch", 1, NOW).why == ""
    assert admitted(one(Tenant(priority_max="batch", requests_per_s=1.0)), 100) == 10


def test_less_than_one_request_in_a_burst_is_still_one_at_a_time() -> None:
    of = one(Tenant(requests_per_s=0.02, burst_s=10.0))
    assert "q=1;w=50" in of.headers("a", "interactive", NOW)["RateLimit-Policy"]
    assert '"requests";r=1;t=0' in of.headers("a", "interactive", NOW)["RateLimit"]
    assert admitted(of, 5) == 1
    assert refused(of).retry_after_ms == pytest.approx(50_000.0, abs=1.0)


def test_headers_say_what_there_is_and_what_is_left() -> None:
    of = one(Tenant(requests_per_s=2.0, chars_per_s=100.0, concurrency_max=4))
    of.admit("a", "interactive", 250, NOW)
    headers = of.headers("a", "interactive", NOW)
    assert headers["RateLimit-Policy"] == (
        '"chars";q=1000;w=10;qu="characters", "requests";q=20;w=10, "concurrency";q=4;qu="concurrent-requests"'
    )
    assert headers["RateLimit"] == '"chars";r=750;t=3, "requests";r=19;t=1, "concurrency";r=3'
    names = re.findall(r'"(batch-\w+)"', of.headers("a", "batch", NOW)["RateLimit"])
    assert names == ["batch-chars", "batch-requests", "batch-concurrency"]


def test_a_reload_keeps_what_was_used_and_what_is_in_flight() -> None:
    of = one(Tenant(requests_per_s=2.0, concurrency_max=1, burst_s=1.0))
    permit = of.admit("a", "interactive", 1, NOW)
    of.update({"a": Tenant(requests_per_s=4.0, concurrency_max=2, burst_s=1.0)})
    second = of.admit("a", "interactive", 1, NOW)
    assert refused(of).policy == "concurrency"
    permit.end()
    second.end()
    assert admitted(of, 5) == 1, "half of it was used before the reload"
    assert refused(of).policy == "requests"
    of.update({})
    assert of.admit("a", "interactive", 1, NOW) == Permit("interactive")


def test_processes_share_one_limit() -> None:
    of = quotas(Tenant(requests_per_s=2.0, concurrency_max=100), 4)
    assert sum(admitted(of[turn % 4], 1) for turn in range(100)) == 20
    assert sum(admitted(of[turn % 4], 1, now=NOW + 3.0) for turn in range(100)) == 6
    of = quotas(Tenant(concurrency_max=5), 4)
    for turn in range(5):
        of[turn % 4].admit("a", "interactive", 1, NOW)
    for process in of:
        assert refused(process).policy == "concurrency"


def test_a_process_that_starts_later_knows_what_was_used() -> None:
    memory = bytearray(memory_bytes(ROWS))
    tenant = {"a": Tenant(requests_per_s=1.0)}
    assert admitted(Quotas(tenant, Ledger(memory, rows=ROWS, row=0)), 100) == 10
    assert admitted(Quotas(tenant, Ledger(memory, rows=ROWS, row=1)), 100) == 0
    assert admitted(Quotas(tenant, Ledger(memory, rows=ROWS, row=1)), 100, now=NOW + 4.0) == 4


def test_at_most_one_request_a_process_is_let_in_too_much_when_all_decide_at_once() -> None:
    """The worst a race can do: every process has looked before any of them charges."""
    tenant, count = Tenant(requests_per_s=1.0, concurrency_max=10), 4
    of = quotas(tenant, count)
    assert admitted(of[0], 9) == 9
    deciding = [process._classes["a"]["interactive"] for process in of]
    assert [used.refusal(1, NOW) for used in deciding] == [None] * count
    for used in deciding:
        used.begin(1, NOW)
    assert deciding[0]._slot.total(Field.REQUESTS) == 9 + count
    for process in of:
        refused(process)
        assert admitted(process, 5, now=NOW + count - 1) == 0, "what was too much is paid off"
    assert admitted(of[0], 5, now=NOW + count) == 1


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(0, 3), st.integers(1, 400)), max_size=80),
)
def test_no_process_thinks_much_less_or_any_more_is_left_than_is(
    count: int, requests: list[tuple[float, int, int]]
) -> None:
    """Against one bucket that sees each charge when it is made: equal, but for one look at the rate."""
    tenant = Tenant(chars_per_s=100.0, burst_s=5.0)
    of, now, looked = quotas(tenant, count), NOW, NOW
    truth = Gcra(rate=100.0, burst=500.0, full_at=0.0)
    for later_s, turn, chars in requests:
        arrives = now + later_s
        while looked + LOOK_S <= arrives:
            looked += LOOK_S
            for process in of:
                process.look(looked)
        now = arrives
        process = of[turn % count]
        later = Gcra(rate=100.0, burst=500.0, full_at=max(truth.full_at, now) + LOOK_S + 1e-6)
        try:
            process.admit("a", "interactive", chars, now).end()
        except RateLimited:
            assert later.wait_s(chars, now) > 0
        else:
            assert truth.wait_s(chars, now) <= 1e-6
            truth.charge(chars, now)
        [bucket] = [meter._bucket for meter in process._classes["a"]["interactive"].meters]
        assert -1e-6 <= max(bucket.full_at, now) - max(truth.full_at, now) <= LOOK_S + 1e-6
