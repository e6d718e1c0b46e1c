"""Who asks and what they may do: keys and limits, swapped together when the config is reloaded. Rules: core/keys.py and
core/quota.py; here are the clock, the counters and the errors that a door answers with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest, RateLimited
from nearsay.wire.messages import Priority
from proxy.config import ProxyConfig, is_loopback
from proxy.core.keys import Keys, shown_key
from proxy.core.ledger import Ledger
from proxy.core.quota import LOOK_S, Quotas
from proxy.core.routing_config import Tenant
from proxy.request import ValidRequest


class Asker(Protocol):
    """What is to be known of a call, and is decided about it."""

    tenant: str
    priority: Priority | None


class Tenants:
    """Single owner of keys and limits."""

    def __init__(
        self,
        config: ProxyConfig,
        tenants: Mapping[str, Tenant],
        ledger: Ledger,
        *,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self._quotas = Quotas({}, ledger)
        self.replace(tenants)

    def replace(self, tenants: Mapping[str, Tenant]) -> None:
        """Keys and limits of a new config, from the next request on, also of links that are open."""
        plain, door_open = self._config.keys, is_loopback(self._config.host)
        self._keys = Keys(plain, tenants, open_door=door_open)
        secret = (self._config.secret,) if self._config.secret else ()
        self._link_keys = Keys((*plain, *secret), tenants, open_door=door_open)  # links may show the secret instead
        self._quotas.update(tenants)
        self._metrics.gauge("limits_crowded", float(self._ledger.crowded))

    def of_header(self, authorization: str) -> str:
        """The tenant of an HTTP request. Raises InvalidRequest (unauthorised)."""
        tenant = self._keys.tenant(self._keys.id(shown_key(authorization)))
        if tenant is None:
            raise InvalidRequest("send 'Authorization: Bearer KEY'", code="unauthorised")
        return tenant

    def key_id(self, secret: str) -> str | None:
        """What the secret in a link's hello is the key of (`nearsay.wire.session.Authorise`)."""
        return self._link_keys.id(secret)

    def of_link(self, key_id: str) -> str:
        """The tenant of a request on a link, as its key stands now. Raises InvalidRequest (unauthorised)."""
        tenant = self._link_keys.tenant(key_id)
        if tenant is None:
            raise InvalidRequest("the key of this link is not valid any more", code="unauthorised")
        return tenant

    @contextmanager
    def permit(self, asker: Asker, request: ValidRequest) -> Iterator[ValidRequest]:
        """The request as it may be served: its class may be a lower one. Raises RateLimited."""
        try:
            permit = self._quotas.admit(asker.tenant, request.priority, request.chars, self._clock())
        except RateLimited as error:
            asker.priority = error.priority
            self._metrics.count("quota", tenant=asker.tenant, outcome="refused", policy=error.policy)
            raise
        try:
            asker.priority = permit.priority
            if permit.why:
                self._metrics.count("quota", tenant=asker.tenant, outcome=permit.why, policy="")
                request = msgspec.structs.replace(request, priority=permit.priority)
            yield request
        finally:
            permit.end()

    def headers(self, asker: Asker) -> dict[str, str]:
        """What an HTTP answer says about the limits of its tenant, once they have been asked."""
        return {} if asker.priority is None else self._quotas.headers(asker.tenant, asker.priority, self._clock())

    async def look_often(self) -> None:
        """Take in, every LOOK_S, what other processes charged."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._quotas.look(self._clock())
