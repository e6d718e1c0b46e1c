"""The address of the client behind a request, as far as the configured hops can be trusted with it."""

from __future__ import annotations

from aiohttp import web

from nearsay.wire.hops import Address, TrustedHops
from proxy.core.forwarded import HopHeader, client_address


class ClientAddresses:
    """Reads requests of one door. With the PROXY protocol a request's peer is the one that the header named."""

    def __init__(self, hops: TrustedHops, header: HopHeader) -> None:
        self._hops = hops
        self._header = header

    def of(self, request: web.Request) -> Address | None:
        """The client's address, None when it can't be known. Never logged, measured or sent on."""
        peer = request.remote
        if peer is None:
            return None
        return client_address(peer, request.headers.getall(self._header, ()), self._header, self._hops)
