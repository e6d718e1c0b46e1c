"""Whose address a request counts as: chains of hops, spoofed and broken headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.hops import Address, TrustedHops
from proxy.core.forwarded import HOPS_MAX, HopHeader, client_address, parse_forwarded, parse_x_forwarded_for

HOPS = TrustedHops(["10.0.0.0/8", "fd00::/8"])
LB = "10.0.0.1"


def ip(text: str) -> Address:
    return ipaddress.ip_address(text)


def who(*lines: str, peer: str = LB, header: HopHeader = "x-forwarded-for") -> str | None:
    found = client_address(peer, lines, header, HOPS)
    return str(found) if found is not None else None


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["203.0.113.7, 10.2.2.2"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7"], "203.0.113.7"),  # the client's own header is to the left
        (["6.6.6.6", "203.0.113.7", "10.2.2.2"], "203.0.113.7"),
        (["203.0.113.7:4711"], "203.0.113.7"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (["2001:db8::1"], "2001:db8::1"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        (["203.0.113.7, fd00::9"], "203.0.113.7"),
        (["10.9.9.9"], "10.9.9.9"),  # a program of ours
        ([], LB),
        (["unknown"], None),
        (["6.6.6.6, unknown, 10.2.2.2"], None),  # not further left: whoever wrote that is not known
        (["6.6.6.6, , 10.2.2.2"], None),
        ([""], None),
        (["203.0.113.7 6.6.6.6"], None),
        (["203.0.113.999"], None),
        (["203.0.113.7:port"], None),
        (["fe80::1%eth0"], None),
    ],
)
def test_x_forwarded_for(lines: Sequence[str], client: str | None) -> None:
    assert who(*lines) == client


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_what_a_stranger_says_is_not_read(header: HopHeader) -> None:
    for line in ("6.6.6.6", "for=6.6.6.6", "10.0.0.1, 10.0.0.1", "garbage\x00"):
        assert who(line, peer="203.0.113.7", header=header) == "203.0.113.7"
    assert client_address(LB, ["6.6.6.6"], header, TrustedHops()) == ip(LB)
    assert who("6.6.6.6", peer="not an address", header=header) is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("for=192.0.2.43", ["192.0.2.43"]),
        ('for=192.0.2.43, for="[2001:db8:cafe::17]"', ["192.0.2.43", "2001:db8:cafe::17"]),
        ('For="[2001:db8:cafe::17]:4711";proto=http;by=203.0.113.43', ["2001:db8:cafe::17"]),
        ('proto=https;for="192.0.2.43:_obscured"', ["192.0.2.43"]),
        ("for=_gazonk, for=unknown", [None, None]),
        ("for=192.0.2.43;host=a,,for=192.0.2.44", ["192.0.2.43", "192.0.2.44"]),
        ("proto=http, for=192.0.2.44", [None, "192.0.2.44"]),  # a hop that named nobody is still a hop
        ('for="\\1\\9\\2.0.2.43"', ["192.0.2.43"]),
        ('host="a, for=6.6.6.6";for=192.0.2.43', ["192.0.2.43"]),
        ("for=192.0.2.43;;proto=http;", ["192.0.2.43"]),
        ("", []),
        ("for=2001:db8::1", [None]),  # IPv6 must be quoted
        ("for=1.1.1.1;for=2.2.2.2", [None]),
        ('for=192.0.2.43;x="unclosed', [None]),
        ('for=6.6.6.6;x=", for="[2001:db8::1]"', [None]),  # an open quote of the client's must not hide a hop's entry
        ("for=192.0.2.43 for=6.6.6.6", [None]),
        ("for 192.0.2.43", [None]),
    ],
)
def test_forwarded(line: str, found: list[str | None]) -> None:
    assert parse_forwarded(line) == [ip(each) if each else None for each in found]


def test_lines_of_forwarded_are_read_by_themselves() -> None:
    assert who('for=6.6.6.6;x="', "for=203.0.113.7, for=10.2.2.2", header="forwarded") == "203.0.113.7"
    assert who('for=6.6.6.6;x="', "for=10.2.2.2", header="forwarded") is None


def test_an_endless_chain_of_ours_ends() -> None:
    ours = ", ".join(["10.1.1.1"] * (HOPS_MAX - 1))
    assert who("203.0.113.7, " + ours) == "203.0.113.7"
    assert who("203.0.113.7, 10.1.1.1, " + ours) is None


public = st.ip_addresses().filter(lambda a: a not in HOPS and getattr(a, "ipv4_mapped", None) is None)
ours = st.sampled_from([ip("10.1.1.1"), ip("10.2.2.2"), ip("fd00::9")])


@given(st.text(max_size=80), public, st.lists(ours, max_size=4))
def test_nothing_to_the_left_of_the_client_changes_who_it_is(forged: str, client: Address, hops: list[Address]) -> None:
    entries = [f"[{a}]:1" if a.version == 6 else f"{a}:1" for a in (client, *hops)]
    assert who(forged, ", ".join(entries)) == str(client)
    assert who(forged + "," + ", ".join(entries)) == str(client)
    quoted = ", ".join(f'for="{entry}";proto=https' for entry in entries)
    assert who(forged, quoted, header="forwarded") == str(client)


FRAGMENTS = ("for=6.6.6.6", "x=", "for=", '"', ";", ",", "\\", " ", "[", "]", ":1", "_a", "6.6.6.6")


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), public)
def test_a_forged_line_never_names_another_client(forged: str, client: Address) -> None:
    """Joined into one line by a careless hop, a client's own bytes can hide its address but not choose one."""
    node = f'"[{client}]"' if client.version == 6 else str(client)
    assert who(f"{forged}, for={node}", header="forwarded") in (None, str(client))


@given(st.text(max_size=200))
def test_parsers_take_any_text(line: str) -> None:
    assert len(parse_x_forwarded_for(line)) == line.count(",") + 1
    assert all(found is None or found.version in (4, 6) for found in parse_forwarded(line))
