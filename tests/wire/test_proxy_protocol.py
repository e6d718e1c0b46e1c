"""The PROXY header: what is one, how it may be cut, and that nothing else is taken for one."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.hops import TrustedHops, parse_address
from nearsay.wire.protocol import ProtocolError
from nearsay.wire.proxy_protocol import (
    PREFACE_BYTES_MAX,
    V1_BYTES_MAX,
    V1_START,
    V2_START,
    Preface,
    parse_preface,
)

V4, V6 = 0x11, 0x21
ports = st.integers(0, 65_535)


def v1(source: str, port: int, family: str = "TCP4", destination: str = "10.0.0.1") -> bytes:
    return f"PROXY {family} {source} {destination} {port} 443\r\n".encode()


def v2(addresses: bytes, family: int = V4, command: int = 0x21, tlvs: bytes = b"") -> bytes:
    body = addresses + tlvs
    return V2_START + bytes((command, family)) + len(body).to_bytes(2, "big") + body


def packed(source: str, port: int) -> bytes:
    """Addresses block of a TCP header; the destination is ours and of no interest."""
    address = ipaddress.ip_address(source).packed
    return address + bytes(len(address)) + port.to_bytes(2, "big") + b"\x01\xbb"


headers = st.one_of(
    st.builds(lambda a, p: (v1(str(a), p), (str(a), p)), st.ip_addresses(v=4), ports),
    st.builds(lambda a, p: (v1(str(a), p, "TCP6", "::1"), (str(a), p)), st.ip_addresses(v=6), ports),
    st.builds(
        lambda a, p, tlvs: (v2(packed(str(a), p), V4, tlvs=tlvs), (str(a), p)),
        st.ip_addresses(v=4),
        ports,
        st.binary(max_size=40),
    ),
    st.builds(lambda a, p: (v2(packed(str(a), p), V6), (str(a), p)), st.ip_addresses(v=6), ports),
    st.sampled_from(
        [(b"PROXY UNKNOWN\r\n", None), (b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n", None), (v2(b"", 0, 0x20), None)]
    ),
)


@given(headers, st.binary(max_size=50))
def test_a_header_is_read_and_what_follows_it_left_alone(
    header: tuple[bytes, tuple[str, int] | None], rest: bytes
) -> None:
    data, source = header
    assert parse_preface(data + rest) == Preface(source, len(data))


@given(headers)
def test_every_beginning_of_a_header_asks_for_more(header: tuple[bytes, object]) -> None:
    data, _ = header
    assert all(parse_preface(data[:end]) is None for end in range(len(data)))


@given(
    st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda b: V2_START + b), st.text().map(str.encode))
)
def test_any_bytes_are_a_header_a_beginning_or_an_error(data: bytes) -> None:
    try:
        preface = parse_preface(data)
    except ProtocolError as error:
        assert error.code == "malformed_preface"
    else:
        assert preface is None or preface.size_bytes <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 1.2.3.4 10.0.0.1 1 2 3\r\n",
        b"PROXY TCP4  1.2.3.4 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 10.0.0.1 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 10.0.0.1 65536 2\r\n",
        b"PROXY TCP4 1.2.3.4 10.0.0.1 007 2\r\n",
        b"PROXY TCP4 1.2.3.4 10.0.0.1 -1 2\r\n",
        b"PROXY TCP4 1.2.3.4 10.0.0.1 \xd9\xa1 2\r\n",
        b"PROXY tcp4 1.2.3.4 10.0.0.1 1 2\r\n",
        b"PROXY UNKNOWNTCP4 1.2.3.4 10.0.0.1 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 10.0.0.1 1 2\r\n",
        b"PROXY \xff\xfe\r\n",
        b"PROXY " + b"x" * V1_BYTES_MAX,
        v2(packed("1.2.3.4", 1), command=0x11),
        v2(packed("1.2.3.4", 1), command=0x22),
        v2(packed("1.2.3.4", 1)[:-1]),
        v2(packed("1.2.3.4", 1), V6),
        v2(b"", V4, tlvs=bytes(PREFACE_BYTES_MAX)),
    ],
)
def test_what_only_looks_like_one_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed_preface"):
        parse_preface(data)


def test_the_bounds_themselves_are_allowed() -> None:
    longest = v2(packed("1.2.3.4", 1), tlvs=bytes(PREFACE_BYTES_MAX - 16 - 12))
    assert parse_preface(longest) == Preface(("1.2.3.4", 1), PREFACE_BYTES_MAX)
    line = b"PROXY UNKNOWN ".ljust(V1_BYTES_MAX - 2, b"x") + b"\r\n"
    assert parse_preface(line) == Preface(None, V1_BYTES_MAX)
    with pytest.raises(ProtocolError):
        parse_preface(line[:-2] + b"x\r\n")
    assert parse_preface(line[:-2]) is None and line.startswith(V1_START)


@pytest.mark.parametrize("family", [0x00, 0x12, 0x22, 0x31, 0xFF])
def test_a_family_that_names_no_tcp_client_leaves_the_peer(family: int) -> None:
    preface = parse_preface(v2(bytes(250), family))
    assert preface is not None and preface.source is None


def test_ipv4_in_ipv6_is_ipv4_for_trust() -> None:
    hops = TrustedHops(["10.0.0.0/8", "2001:db8::/32"])
    for trusted in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "2001:db8::1%eth0"):
        address = parse_address(trusted)
        assert address is not None and address in hops
    outside = parse_address("11.0.0.1")
    assert outside is not None and outside not in hops and outside not in TrustedHops()
    assert parse_address("10.0.0.1:80") is None and parse_address("") is None
    with pytest.raises(ValueError, match="host bits"):
        TrustedHops(["10.0.0.1/8"])
