"""Round trips by network: medians, ageing, bounds, and what one liar can do."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.probes import RTT_MS_MAX, Network, ProbeLimits, ProbeTable, network_of

HERE: Network = (4, 1)


def table(**limits: float) -> ProbeTable:
    return ProbeTable(ProbeLimits(**limits))  # type: ignore[arg-type]


def told(probes: ProbeTable, tenant: str = "asker", prior_ms: float | None = 50.0, now: float = 0.0) -> float | None:
    return probes.estimate(HERE, "eu", tenant, prior_ms, now)


def say(probes: ProbeTable, tenant: str, rtt_ms: float, reporter: int = 1, now: float = 0.0) -> int:
    return probes.report(HERE, reporter, tenant, {"eu": rtt_ms}, now)


def test_networks_are_the_blocks_that_are_routed() -> None:
    of = {text: network_of(ipaddress.ip_address(text)) for text in ("192.0.2.1", "192.0.2.255", "192.0.3.1")}
    assert of["192.0.2.1"] == of["192.0.2.255"] != of["192.0.3.1"]
    six = [network_of(ipaddress.ip_address(text)) for text in ("2001:db8:1::1", "2001:db8:1:ffff::2", "2001:db8:2::1")]
    assert six[0] == six[1] != six[2]
    assert network_of(ipaddress.ip_address("::1")) != network_of(ipaddress.ip_address("0.0.0.1"))


def test_without_reports_distance_is_all() -> None:
    assert told(table()) == 50.0 and told(table(), prior_ms=None) is None


def test_a_tenant_is_told_what_it_saw() -> None:
    probes = table()
    say(probes, "asker", 200.0)
    assert told(probes) == 200.0
    assert told(probes, prior_ms=None) == 200.0


def test_one_stranger_does_not_overrule_distance_and_two_do() -> None:
    probes = table()
    say(probes, "one", 5.0)
    assert told(probes) == 50.0
    assert told(probes, prior_ms=None) == 5.0, "better than nothing"
    say(probes, "two", 8.0)
    assert told(probes) == 8.0


def test_a_tenants_vote_is_the_median_of_its_reporters() -> None:
    probes = table()
    for reporter, rtt_ms in enumerate((20.0, 1.0, 21.0)):
        say(probes, "asker", rtt_ms, reporter)
    assert told(probes) == 20.0
    say(probes, "asker", 1.0, 1)
    assert told(probes) == 20.0, "who repeats itself has said nothing new"


def test_reports_age_one_by_one() -> None:
    probes = table(ttl_s=100.0)
    say(probes, "asker", 10.0, 1, now=0.0)
    say(probes, "asker", 20.0, 2, now=60.0)
    assert told(probes, now=100.0) == 10.0
    assert told(probes, now=100.1) == 20.0
    assert told(probes, now=160.1) == 50.0


@pytest.mark.parametrize("rtt_ms", [0.0, -1.0, float("nan"), float("inf"), RTT_MS_MAX + 1])
def test_what_can_be_no_round_trip_is_dropped(rtt_ms: float) -> None:
    probes = table()
    assert say(probes, "asker", rtt_ms) == 0 and not len(probes)


def test_networks_are_bounded() -> None:
    probes = table(networks_max=2)
    for number in (1, 2, 1, 3):
        probes.report((4, number), 1, "t", {"eu": 9.0}, 0.0)
    assert len(probes) == 2
    assert [probes.estimate((4, n), "eu", "t", None, 0.0) for n in (1, 2, 3)] == [9.0, None, 9.0]


def test_a_flood_by_one_tenant_pushes_nobody_out() -> None:
    probes = table(reports_max=4)
    say(probes, "one", 10.0, now=0.0)
    say(probes, "two", 11.0, now=0.0)
    for reporter in range(1000):
        say(probes, "flood", 1.0, reporter, now=1.0)
    assert told(probes, "one", now=1.0) == 10.0
    assert told(probes, "stranger", None, now=1.0) == 10.0


rtts = st.floats(1.0, 400.0)


@given(st.lists(rtts, min_size=2, max_size=5), rtts, st.lists(rtts, min_size=1, max_size=30))
def test_one_liar_stays_within_what_others_say(honest: list[float], prior_ms: float, lies: list[float]) -> None:
    """With two honest tenants a liar, however often it speaks, moves the estimate no further than their words go."""
    probes = table()
    for number, rtt_ms in enumerate(honest):
        say(probes, f"honest {number}", rtt_ms)
    for reporter, lie in enumerate(lies):
        say(probes, "liar", lie, reporter)
    estimate = told(probes, "asker", prior_ms)
    assert estimate is not None
    assert min(*honest, prior_ms) <= estimate <= max(*honest, prior_ms)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.floats(-10, 20_000), st.floats(0, 50)), max_size=40
    ),
    st.none() | rtts,
)
def test_an_estimate_is_always_somebodys_word(
    said: list[tuple[int, str, float, float]], prior_ms: float | None
) -> None:
    probes = table(ttl_s=100.0, reports_max=5)
    now = 0.0
    for reporter, tenant, rtt_ms, gap in said:
        now += gap
        say(probes, tenant, rtt_ms, reporter, now)
        words = {rtt_ms for _, _, rtt_ms, _ in said} | ({prior_ms} if prior_ms is not None else set())
        estimate = told(probes, "a", prior_ms, now)
        assert estimate in words or (estimate is None and prior_ms is None)
