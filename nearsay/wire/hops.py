"""The hops in front of a door: whose word about a client's address is taken.

Decides: whether an address is one of our own load balancers or proxies.
Must not know: headers, sockets, where the networks were configured.
Invariants: no networks = nobody is trusted; IPv4 written as IPv6 (::ffff:a.b.c.d) is IPv4 everywhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

ADDRESSES_MAX = 4096  # parsed ones remembered: a client's requests come by the dozen

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@lru_cache(ADDRESSES_MAX)
def parse_address(text: str) -> Address | None:
    """An IP address in its canonical family, None for anything else. A zone (`fe80::1%eth0`) is dropped."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class TrustedHops:
    """Networks of trusted hops."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Raises ValueError for what is no network (`10.0.0.0/8`, `2001:db8::/32`) or has bits outside its mask."""
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: Address) -> bool:
        return any(address in network for network in self._networks)
