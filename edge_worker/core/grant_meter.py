"""What holders of grants use of this edge, tenant by tenant.

Decides: whether one request more is within the share that a tenant's grants allow here.
Must not know: tokens, links, what a request asks for beyond its size, clocks (`now` is an argument, monotonic seconds).
Invariants: use is a tenant's, whoever holds how many of its grants, so that copies and repeats add nothing; nothing is
charged for what is refused; every `begin` that returns is ended once; TENANTS_MAX are remembered, and none is forgotten
while it has something to pay off.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass

from nearsay.traffic.gcra import Gcra
from nearsay.wire.errors import RateLimited
from nearsay.wire.grant import Grant

TENANTS_MAX = 4096
LOOKED_AT = 16  # of the tenants that were longest away, for one to forget
BUSY_RETRY_MS = 1000.0  # when a place is free again nobody knows


@dataclass(slots=True)
class _Use:
    requests: Gcra
    chars: Gcra
    in_flight: int = 0

    def idle(self, now: float) -> bool:
        """Whether forgetting it changes nothing."""
        return not self.in_flight and max(self.requests.full_at, self.chars.full_at) <= now


class GrantMeter:
    """Single writer of the use of all tenants."""

    def __init__(self, *, tenants_max: int = TENANTS_MAX) -> None:
        self._uses: OrderedDict[str, _Use] = OrderedDict()
        self._tenants_max = tenants_max

    def begin(self, grant: Grant, chars: int, now: float) -> None:
        """Take a request in. Raises RateLimited; the proxy may still have room for it."""
        use = self._use(grant, now)
        if use.in_flight >= grant.concurrency_max:
            raise RateLimited("too many direct requests at once", retry_after_ms=BUSY_RETRY_MS)
        wait_s = max(use.requests.wait_s(1.0, now), use.chars.wait_s(chars, now))
        if wait_s > 0:
            raise RateLimited("the direct share is used up", retry_after_ms=wait_s * 1000.0)
        use.requests.charge(1.0, now)
        use.chars.charge(chars, now)
        use.in_flight += 1

    def end(self, grant: Grant) -> None:
        """A request that began is over."""
        use = self._uses[grant.tenant]
        assert use.in_flight > 0
        use.in_flight -= 1

    def _use(self, grant: Grant, now: float) -> _Use:
        """A tenant's use, at the rates of the grant that is shown now: what is owed stays owed."""
        known = self._uses.get(grant.tenant)
        if known is None and len(self._uses) >= self._tenants_max:
            self._forget_one(now)
        requests = _bucket(known.requests if known else None, grant.requests_per_s, grant.burst_s, now)
        chars = _bucket(known.chars if known else None, grant.chars_per_s, grant.burst_s, now)
        self._uses[grant.tenant] = use = _Use(requests, chars, known.in_flight if known else 0)
        self._uses.move_to_end(grant.tenant)
        return use

    def _forget_one(self, now: float) -> None:
        for tenant, use in itertools.islice(self._uses.items(), LOOKED_AT):
            if use.idle(now):
                del self._uses[tenant]
                return
        raise RateLimited("too many tenants at once", retry_after_ms=BUSY_RETRY_MS)


def _bucket(known: Gcra | None, rate: float, burst_s: float, now: float) -> Gcra:
    # At least one unit at once: a small share of a small rate is slow, not nothing.
    return Gcra(rate=rate, burst=max(1.0, rate * burst_s), full_at=known.full_at if known else now)
