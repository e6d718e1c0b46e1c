"""Hosts that read each other's lines: what each takes in, and what it must not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.errors import RateLimited
from proxy.core import hosts as module
from proxy.core.hosts import DEAD_S, FORGET_S, GAP_BEATS, HOSTS_MAX, QUIET_BEATS, SYNC_S, Hosts, Line
from proxy.core.ledger import Field, Ledger, memory_bytes
from proxy.core.quota import Permit, Quotas
from proxy.core.routing_config import Tenant

NOW = 1000.0


class Host:
    """A host with one process: row 0 is its own, row 1 the others'."""

    def __init__(self, tenant: Tenant) -> None:
        memory = bytearray(memory_bytes(2))
        self.ledger = Ledger(memory, rows=2, row=0)
        self.quotas = Quotas({"a": tenant}, self.ledger)
        self.hosts = Hosts(Ledger(memory, rows=2, row=1), range(1))

    def admitted(self, count: int, now: float) -> list[Permit]:
        permits = []
        for _ in range(count):
            try:
                permits.append(self.quotas.admit("a", "interactive", 1, now))
            except RateLimited:
                break
        return permits


def made(tenant: Tenant, count: int) -> list[Host]:
    return [Host(tenant) for _ in range(count)]


def exchange(*all_hosts: Host, now: float, board: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """Every host says something, then hears all others, then looks."""
    board = {} if board is None else board
    for number, host in enumerate(all_hosts):
        board[b"%d" % number] = host.hosts.say()
    for number, host in enumerate(all_hosts):
        host.hosts.hear({name: line for name, line in board.items() if name != b"%d" % number}, now)
        host.quotas.look(now)
    return board


def test_what_one_host_used_the_others_have_not_any_more() -> None:
    first, second, third = made(Tenant(requests_per_s=1.0), 3)
    exchange(first, second, third, now=NOW)
    assert len(first.admitted(6, NOW)) == 6
    exchange(first, second, third, now=NOW)
    assert len(second.admitted(100, NOW)) == 4
    exchange(first, second, third, now=NOW)
    assert len(third.admitted(100, NOW)) == len(first.admitted(100, NOW)) == 0
    assert len(third.admitted(100, NOW + 3.0)) == 3


def test_at_most_a_burst_a_host_is_let_in_too_much_once_and_paid_off() -> None:
    """The worst: all are flooded at once, before any has heard of the others."""
    three = made(Tenant(requests_per_s=1.0, burst_s=10.0), 3)
    exchange(*three, now=NOW)
    assert sum(len(host.admitted(100, NOW)) for host in three) == 30
    exchange(*three, now=NOW)
    now, later = NOW, 0
    while now < NOW + 60.0:
        now += 0.5
        later += sum(len(host.admitted(100, now)) for host in three)
        exchange(*three, now=now)
    assert 30 + later <= 10 + 60 + 3, "in the long run the rate is the rate, to one request a host"
    assert 30 + later >= 60, "and it is given"


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 0.4)), max_size=120))
def test_the_rate_holds_over_hosts_whatever_comes_when(requests: list[tuple[int, float]]) -> None:
    three, now, synced, taken = made(Tenant(requests_per_s=2.0, burst_s=2.0), 3), NOW, NOW, 0
    exchange(*three, now=now)
    for turn, later_s in requests:
        while synced + SYNC_S <= now + later_s:
            synced += SYNC_S
            exchange(*three, now=synced)
        now += later_s
        taken += len(three[turn].admitted(1, now))
    assert taken <= 3 * 4 + 2.0 * (now - NOW) + 1e-6


def test_requests_in_flight_count_on_all_hosts_until_they_end_or_their_host_does() -> None:
    first, second = made(Tenant(concurrency_max=3), 2)
    permits = first.admitted(2, NOW)
    board = exchange(first, second, now=NOW)
    assert len(second.admitted(9, NOW)) == 1
    permits[0].end()
    exchange(first, second, now=NOW, board=board)
    assert len(second.admitted(9, NOW)) == 1
    second.hosts.hear({b"0": board[b"0"]}, NOW + DEAD_S)
    assert len(second.admitted(9, NOW + DEAD_S)) == 1, "the first one's last request counts no more"


def test_what_was_used_while_a_host_could_not_be_heard_is_not_charged() -> None:
    first, second = made(Tenant(requests_per_s=1.0), 2)
    exchange(first, second, now=NOW)
    for beat in range(GAP_BEATS + 1):
        first.admitted(1, NOW + beat)
        first.hosts.say()
    later = NOW + GAP_BEATS
    exchange(first, second, now=later)
    assert len(second.admitted(100, later)) == 10
    first.admitted(1, later + 10.0)
    exchange(first, second, now=later + 10.0)
    assert len(second.admitted(100, later + 10.0)) == 9, "from then on it is again"


def test_a_host_that_starts_later_does_not_pay_for_what_was_before() -> None:
    first, second = made(Tenant(requests_per_s=1.0), 2)
    for beat in range(GAP_BEATS + 1):
        first.admitted(1, NOW + beat)
        first.hosts.say()
    exchange(first, second, now=NOW + 50.0)
    assert len(second.admitted(100, NOW + 50.0)) == 10


def test_a_tenant_that_is_quiet_is_left_out_and_comes_back_as_it_was() -> None:
    first, second = made(Tenant(requests_per_s=1.0), 2)
    for permit in first.admitted(3, NOW):
        permit.end()
    assert len(exchange(first, second, now=NOW)[b"0"]) > 30
    for _ in range(QUIET_BEATS):
        line = first.hosts.say()
        second.hosts.hear({b"0": line}, NOW)
    assert msgspec.msgpack.decode(line, type=Line).tenants == {}
    later = NOW + QUIET_BEATS * SYNC_S
    first.admitted(2, later)
    exchange(first, second, now=later)
    assert len(second.admitted(100, later)) == 8, "only what is new"


def test_one_with_something_in_flight_is_not_quiet() -> None:
    [host] = made(Tenant(concurrency_max=3), 1)
    host.admitted(1, NOW)
    for _ in range(QUIET_BEATS + 2):
        line = host.hosts.say()
    assert len(msgspec.msgpack.decode(line, type=Line).tenants) == 1


def test_a_silent_hosts_line_is_wiped_off_and_it_may_come_back() -> None:
    first, second = made(Tenant(requests_per_s=1.0), 2)
    board = exchange(first, second, now=NOW)
    assert second.hosts.hear({}, NOW + FORGET_S - 1.0) == []
    assert second.hosts.hear({}, NOW + FORGET_S) == [b"0"]
    first.admitted(5, NOW + FORGET_S)
    for _ in range(GAP_BEATS):
        first.hosts.say()
    exchange(first, second, now=NOW + FORGET_S, board=board)
    assert len(second.admitted(100, NOW + FORGET_S)) == 10


@given(
    st.binary(max_size=60)
    | st.lists(st.integers(-9, 2**60) | st.dictionaries(st.binary(max_size=17), st.lists(st.floats())), max_size=3)
)
def test_whatever_stands_on_the_board_breaks_nothing(said: bytes | list[object]) -> None:
    [host] = made(Tenant(requests_per_s=1.0), 1)
    line = said if isinstance(said, bytes) else msgspec.msgpack.encode(said)
    host.hosts.hear({b"x": line}, NOW)
    assert host.ledger.slot("a").total(Field.REQUESTS) == 0
    host.quotas.look(NOW)
    assert len(host.admitted(100, NOW)) == 10


@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e300])
def test_a_line_with_a_number_that_can_not_be_is_counted_and_dropped(value: float) -> None:
    [host] = made(Tenant(requests_per_s=1.0), 1)
    cells = [value] * len(module._SAID_FIELDS)
    host.hosts.hear({b"x": msgspec.msgpack.encode(Line(1, {b"d" * 16: cells}))}, NOW)
    assert host.hosts.malformed == 1 and host.ledger.shared().keys() == {next(iter(host.ledger.shared()))}


def test_hosts_past_the_bound_are_not_heard() -> None:
    [host] = made(Tenant(requests_per_s=1.0), 1)
    line = msgspec.msgpack.encode(Line(1, {}))
    host.hosts.hear({b"%d" % number: line for number in range(HOSTS_MAX + 5)}, NOW)
    assert len(host.hosts._hosts) == HOSTS_MAX
