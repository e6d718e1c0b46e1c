"""What a tenant may do now: characters and requests a second, and how many requests at once, in each of two classes.

Decides: the class that a request is served in, or that it is refused, and until when.
Must not know: keys, HTTP, processes and hosts (the ledger adds them up), clocks (`now` is an argument, in monotonic
seconds that all processes of a host share).
Invariants: nothing is charged for what is refused; a permit ends once; interactive work that is short is never demoted,
bulk work is refused only when the batch class is full, too; a class never uses up what the other one has.
How exact: a process sees what others charged at its next look, and charges it then. It never takes more to be left than
is, but for what the others charge while it decides (one request each), and never less, but for one LOOK_S of the rate.
Other hosts are seen later (shared_limits.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nearsay.traffic.gcra import Gcra
from nearsay.wire.errors import RateLimited
from nearsay.wire.messages import Priority
from proxy.core.ledger import CLASS_FIELDS, Field, Ledger, Slot
from proxy.core.routing_config import Tenant

LOOK_S = 0.2  # how often each process looks at what the others used
_ROUNDING = 1e-6  # 9.9999999 units are ten
FULL_RETRY_MS = 1000.0  # when to come again to a tenant whose requests in flight are too many: nobody knows


class Meter:
    """One rate of one class: a bucket that all processes take from."""

    def __init__(self, unit: str, slot: Slot, field: int, *, rate: float, burst_s: float) -> None:
        """`field`: the cell of what was charged ever; the next one says when the bucket is full again."""
        self.unit = unit
        self.window_s = max(burst_s, 1.0 / rate)
        self.quota = max(1, round(rate * self.window_s))
        self._slot = slot
        self._field = field
        self._seen = slot.total(field)  # before: what it came to is in the others' `full_at`
        self._bucket = Gcra(rate=rate, burst=rate * burst_s, full_at=slot.highest(field + 1))

    def look(self, now: float) -> None:
        """Take in what others charged since the last look."""
        total = self._slot.total(self._field)
        if total > self._seen:
            self._charged(total - self._seen, now)

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` fits."""
        return self._bucket.wait_s(cost, now)

    def charge(self, cost: float, now: float) -> None:
        """Take `cost` out."""
        self._slot.add(self._field, cost)
        self._charged(cost, now)

    def left(self, now: float) -> int:
        """Whole units that fit now; a full bucket has the whole quota, also one that holds less than a unit."""
        return self.quota if self._bucket.full_at <= now else min(self.quota, int(self._bucket.left(now) + _ROUNDING))

    def full_in_s(self, now: float) -> int:
        """Whole seconds until all of the quota is there again."""
        return max(0, math.ceil(self._bucket.full_at - now))

    def _charged(self, cost: float, now: float) -> None:
        self._seen += cost
        self._bucket.charge(cost, now)
        self._slot.put(self._field + 1, self._bucket.full_at)


class TenantClass:
    """One tenant's limits in one class."""

    def __init__(self, tenant: Tenant, priority: Priority, slot: Slot) -> None:
        share = 1.0 if priority == "interactive" else tenant.batch_ratio
        base = 0 if priority == "interactive" else CLASS_FIELDS
        rates = (("chars", tenant.chars_per_s, Field.CHARS), ("requests", tenant.requests_per_s, Field.REQUESTS))
        self.priority = priority
        self.concurrency_max = math.ceil(tenant.concurrency_max * share)
        self.meters = [
            Meter(unit, slot, base + field, rate=rate * share, burst_s=tenant.burst_s)
            for unit, rate, field in rates
            if rate > 0
        ]
        self._slot = slot
        self._in_flight = base + Field.IN_FLIGHT

    @property
    def in_flight(self) -> int:
        """Requests in flight in all processes."""
        return int(self._slot.total(self._in_flight))

    def look(self, now: float) -> None:
        """Take in what others did."""
        for meter in self.meters:
            meter.look(now)

    def refusal(self, chars: int, now: float) -> RateLimited | None:
        """Why a request of so many characters can't be taken now, the limit that holds it longest first."""
        self.look(now)
        if self.concurrency_max and self.in_flight >= self.concurrency_max:
            return self._refuse("concurrency", f"{self.concurrency_max} requests at once", FULL_RETRY_MS)
        waits = [(meter.wait_s(_cost(meter, chars), now), meter) for meter in self.meters]
        wait_s, meter = max(waits, default=(0.0, None), key=lambda wait: wait[0])
        if meter is None or not wait_s:
            return None
        return self._refuse(meter.unit, f"{meter.quota} {meter.unit} in {meter.window_s:g} s", wait_s * 1000.0)

    def begin(self, chars: int, now: float) -> None:
        """Charge a request."""
        for meter in self.meters:
            meter.charge(_cost(meter, chars), now)
        self._slot.add(self._in_flight, 1.0)

    def end(self) -> None:
        """It is over."""
        self._slot.add(self._in_flight, -1.0)

    def policy(self, unit: str) -> str:
        """A limit's name, as headers and problems spell it."""
        return unit if self.priority == "interactive" else f"batch-{unit}"

    def _refuse(self, unit: str, limit: str, wait_ms: float) -> RateLimited:
        detail = f"{self.priority} requests: at most {limit}"
        return RateLimited(detail, retry_after_ms=math.ceil(wait_ms), policy=self.policy(unit), priority=self.priority)


def _cost(meter: Meter, chars: int) -> float:
    return float(chars) if meter.unit == "chars" else 1.0


@dataclass(slots=True)
class Permit:
    """A request that was let in, in `priority`. Ends once, by `end`."""

    priority: Priority
    why: str = ""  # "demoted" or "capped" when that isn't the class asked for
    used: TenantClass | None = None  # what it was charged to

    def end(self) -> None:
        """The request is over."""
        if self.used is not None:
            self.used.end()
            self.used = None


class Quotas:
    """The limits of all tenants. A tenant that isn't configured has none."""

    def __init__(self, tenants: Mapping[str, Tenant], ledger: Ledger) -> None:
        self._ledger = ledger
        self._tenants: Mapping[str, Tenant] = {}
        self._classes: dict[str, dict[Priority, TenantClass]] = {}
        self.update(tenants)

    def update(self, tenants: Mapping[str, Tenant]) -> None:
        """New limits. What was used stays used, what is in flight ends where it began."""
        self._classes = {name: self._made(name, tenant) for name, tenant in tenants.items() if _limited(tenant)}
        self._tenants = dict(tenants)

    def admit(self, name: str, asked: Priority, chars: int, now: float) -> Permit:
        """Let a request in, as it is or in the batch class. Raises RateLimited."""
        tenant = self._tenants.get(name)
        if tenant is None:
            return Permit(asked)
        capped = asked == "interactive" and tenant.priority_max == "batch"
        permit = Permit("batch" if capped else asked, "capped" if capped else "")
        classes = self._classes.get(name)
        if classes is None:
            return permit
        refusal = classes[permit.priority].refusal(chars, now)
        if refusal is not None and permit.priority == "interactive" and chars >= tenant.bulk_chars_min:
            permit = Permit("batch", "demoted")
            refusal = classes["batch"].refusal(chars, now)
        if refusal is not None:
            raise refusal
        permit.used = classes[permit.priority]
        permit.used.begin(chars, now)
        return permit

    def look(self, now: float) -> None:
        """Take in what other processes did; to be called every LOOK_S."""
        for used in self._all():
            used.look(now)

    def headers(self, name: str, priority: Priority, now: float) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-09), if the tenant has limits."""
        classes = self._classes.get(name)
        if classes is None:
            return {}
        used = classes[priority]
        policies, states = [], []
        for meter in used.meters:
            unit = ';qu="characters"' if meter.unit == "chars" else ""
            policies.append(f'"{used.policy(meter.unit)}";q={meter.quota};w={math.ceil(meter.window_s)}{unit}')
            states.append(f'"{used.policy(meter.unit)}";r={meter.left(now)};t={meter.full_in_s(now)}')
        if used.concurrency_max:
            policy = used.policy("concurrency")
            policies.append(f'"{policy}";q={used.concurrency_max};qu="concurrent-requests"')
            states.append(f'"{policy}";r={max(0, used.concurrency_max - used.in_flight)}')
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}

    def _made(self, name: str, tenant: Tenant) -> dict[Priority, TenantClass]:
        slot = self._ledger.slot(name)
        return {priority: TenantClass(tenant, priority, slot) for priority in ("interactive", "batch")}

    def _all(self) -> Iterator[TenantClass]:
        return (used for classes in self._classes.values() for used in classes.values())


def _limited(tenant: Tenant) -> bool:
    return bool(tenant.chars_per_s or tenant.requests_per_s or tenant.concurrency_max)
