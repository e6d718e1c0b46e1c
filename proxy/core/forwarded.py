"""Who the client is, by what the hops in front of us have written down.

Decides: which of the addresses in a chain of hops is the client's: from our side, the first that is no hop of ours.
Must not know: requests, sockets, where the hops are configured.
Invariants: only one header counts, the configured one: a hop that writes X-Forwarded-For passes a client's own
Forwarded on, and the other way round. What an untrusted peer says is never read. None = it can't be known, never a
guess. Forwarded is RFC 7239; each line of it is read by itself, so that a client's open quote can't swallow a later
hop's line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from nearsay.wire.hops import Address, TrustedHops, parse_address

HopHeader = Literal["x-forwarded-for", "forwarded"]
HOPS_MAX = 32  # entries looked at, from our side; a longer chain of our own hops is a loop

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PAIR = re.compile(rf"({_TOKEN})=({_TOKEN}|{_QUOTED})")
_ESCAPE = re.compile(r"\\(.)")
# An address with or without a port; IPv6 is in brackets when it has one. Ports may be obfuscated, too (`_name`).
_PORT = r"(?::(?:\d{1,5}|_[A-Za-z0-9._-]+))?"
_NODE = re.compile(rf"\[([0-9A-Fa-f:.]+)\]{_PORT}|([0-9.]+){_PORT}")


def client_address(peer: str, lines: Sequence[str], header: HopHeader, hops: TrustedHops) -> Address | None:
    """The client's address. `peer` is who connected to us, `lines` the header's values, in the order they stood in."""
    address = parse_address(peer)
    if address is None or address not in hops:
        return address
    entries = _from_our_side(lines, header)
    for _ in range(HOPS_MAX):
        try:
            address = next(entries)
        except StopIteration:
            return address  # the first hop of ours is all there is: it asks for itself
        if address is None or address not in hops:
            return address
    return None


def _from_our_side(lines: Sequence[str], header: HopHeader) -> Iterator[Address | None]:
    read = parse_forwarded if header == "forwarded" else parse_x_forwarded_for
    for line in reversed(lines):
        yield from reversed(read(line))


def parse_x_forwarded_for(line: str) -> list[Address | None]:
    """Addresses of one X-Forwarded-For line, client first; None for each entry that is none."""
    return [_node(entry.strip()) for entry in line.split(",")]


def parse_forwarded(line: str) -> list[Address | None]:
    """The `for` of each element of one Forwarded line; None where it is unknown, obfuscated or absent.

    A line that breaks the grammar is one None: nothing in it can be told apart.
    """
    found: list[Address | None] = []
    at, end = 0, len(line)
    address: Address | None = None
    named = said = False  # in this element: its `for`, and anything at all
    while True:
        at = _skip(line, at)
        pair = _PAIR.match(line, at)
        if pair is not None:
            at, said = _skip(line, pair.end()), True
            if pair[1].lower() == "for":
                if named:
                    return [None]
                named, address = True, _node(_unquoted(pair[2]))
        if at == end or line[at] == ",":
            if said:  # empty elements are allowed, and are no hops
                found.append(address)
            if at == end:
                return found
            address, named, said = None, False, False
        elif line[at] != ";":
            return [None]
        at += 1


def _skip(line: str, at: int) -> int:
    while at < len(line) and line[at] in " \t":
        at += 1
    return at


def _unquoted(value: str) -> str:
    return _ESCAPE.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def _node(text: str) -> Address | None:
    """An address, with or without a port. Bare IPv6 is what X-Forwarded-For has; `unknown` and `_hidden` are None."""
    node = _NODE.fullmatch(text)
    if node is not None:
        return parse_address(node[1] or node[2])
    return parse_address(text) if text.count(":") > 1 and "%" not in text else None
