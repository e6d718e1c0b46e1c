"""The PROXY protocol's header, versions 1 and 2: what a load balancer says of a connection before its first byte.

Decides: whether the bytes so far are a whole header, the beginning of one, or none.
Must not know: sockets, who may send one, what follows it.
Invariants: parsing raises ProtocolError and nothing else, never reads past the header, and asks for more only while
fewer than PREFACE_BYTES_MAX bytes have come that could still become one. TLVs are skipped.
HAProxy Technologies, "The PROXY protocol, versions 1 & 2", 2020.
"""

from __future__ import annotations

import ipaddress

import msgspec

from nearsay.wire.protocol import ProtocolError

V1_START = b"PROXY "
V1_BYTES_MAX = 107  # with CRLF, by the specification
V2_START = b"\r\n\r\n\0\r\nQUIT\n"
V2_FIXED_BYTES = 16
PREFACE_BYTES_MAX = 4096  # addresses take 52; the rest is room for TLVs such as a client certificate's name
_V2_LOCAL, _V2_PROXY = 0x20, 0x21
_V2_TCP4, _V2_TCP6 = 0x11, 0x21
_V2_ADDRESS_BYTES = {_V2_TCP4: 4, _V2_TCP6: 16}


class Preface(msgspec.Struct, frozen=True):
    """A whole header. `source` is the client's address and port, None where the header names none (a health check)."""

    source: tuple[str, int] | None
    size_bytes: int


def parse_preface(data: bytes) -> Preface | None:
    """The header that `data` begins with, None when more bytes are needed. Raises ProtocolError(malformed_preface)."""
    if data.startswith(V1_START):
        return _parse_v1(data)
    if data.startswith(V2_START):
        return _parse_v2(data)
    if V1_START.startswith(data) or V2_START.startswith(data):
        return None
    raise _malformed("neither version's signature")


def _malformed(detail: str) -> ProtocolError:
    return ProtocolError("malformed_preface", detail)


def _parse_v1(data: bytes) -> Preface | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise _malformed("the line is too long")
        return None
    words = data[len(V1_START) : end].split(b" ")
    size = end + 2
    if words[0] == b"UNKNOWN":
        return Preface(None, size)
    if len(words) != 5 or words[0] not in (b"TCP4", b"TCP6"):
        raise _malformed("not PROXY TCP4|TCP6|UNKNOWN with two addresses and two ports")
    version = 4 if words[0] == b"TCP4" else 6
    source, _ = _v1_address(words[1], version), _v1_address(words[2], version)
    port, _ = _v1_port(words[3]), _v1_port(words[4])
    return Preface((source, port), size)


def _v1_address(word: bytes, version: int) -> str:
    try:
        text = word.decode("ascii")
        address = ipaddress.ip_address(text)
    except ValueError:
        raise _malformed("not an address") from None
    if address.version != version or "%" in text:
        raise _malformed("an address of another family")
    return str(address)


def _v1_port(word: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) <= 65_535) or (word[:1] == b"0" and word != b"0"):
        raise _malformed("not a port")
    return int(word)


def _parse_v2(data: bytes) -> Preface | None:
    if len(data) < V2_FIXED_BYTES:
        return None
    command, family, length = data[12], data[13], int.from_bytes(data[14:16], "big")
    size = V2_FIXED_BYTES + length
    if command not in (_V2_LOCAL, _V2_PROXY):
        raise _malformed("another version or command")
    if size > PREFACE_BYTES_MAX:
        raise _malformed("the header is too long")
    width = _V2_ADDRESS_BYTES.get(family)
    if command == _V2_PROXY and width is not None and length < 2 * width + 4:
        raise _malformed("shorter than its addresses")
    if len(data) < size:
        return None
    if command == _V2_LOCAL or width is None:  # ourselves, or a family that says nothing about a TCP client
        return Preface(None, size)
    source = ipaddress.ip_address(data[16 : 16 + width])
    ports = 16 + 2 * width
    return Preface((str(source), int.from_bytes(data[ports : ports + 2], "big")), size)
