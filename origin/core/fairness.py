"""Whose turn it is among tenants that wait in one class.

Decides: the order between tenants (deficit round robin) and within one (earliest deadline first).
Must not know: slots, steps, other classes.
Invariants: over time, tenants that always wait are served the same cost, to within one request and one quantum; a
tenant whose first in line can't be seated keeps its place, so nobody passes it; at most `tenants_max` lanes exist.
Paper: Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round Robin (1996).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container

from origin.core.sequence import Sequence

CROWD = ""
"""The lane of those who name no tenant, and of tenants that come when there are `tenants_max` lanes already."""


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


class _Lane:
    """One tenant's waiting sequences by model, each list by `Sequence.order`."""

    __slots__ = ("by_model", "count", "credit", "tenant")

    def __init__(self, tenant: str, credit: int) -> None:
        self.tenant = tenant
        self.credit = credit
        self.count = 0
        self.by_model: dict[str, list[Sequence]] = {}

    def first(self, blocked: Container[str]) -> Sequence | None:
        heads = [waiting[0] for model, waiting in self.by_model.items() if model not in blocked]
        return min(heads, key=_order) if len(heads) > 1 else heads[0] if heads else None


class TenantRing:
    """`quantum`: cost that a tenant may use before the next one's turn. `tenant_max`: how many of one tenant wait."""

    def __init__(self, *, quantum: int, tenants_max: int, tenant_max: int) -> None:
        assert min(quantum, tenants_max, tenant_max) > 0
        self._quantum = quantum
        self._tenants_max = tenants_max
        self._tenant_max = tenant_max
        self._ring: list[_Lane] = []  # the first one's turn
        self._lanes: dict[str, _Lane] = {}
        self._lane_of: dict[int, _Lane] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    @property
    def lanes(self) -> int:
        """Tenants that wait."""
        return len(self._ring)

    def full(self, tenant: str) -> bool:
        """Whether one more of a tenant would be too many of it."""
        lane = self._lanes.get(self._lane_name(tenant))
        return lane is not None and lane.count >= self._tenant_max

    def add(self, sequence: Sequence) -> None:
        """Put a sequence in its tenant's line."""
        name = self._lane_name(sequence.spec.tenant)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, self._quantum)
            self._ring.append(lane)
        insort(lane.by_model.setdefault(sequence.spec.model, []), sequence, key=_order)
        lane.count += 1
        self._lane_of[sequence.spec.id] = lane

    def remove(self, sequence: Sequence, *, served: bool) -> None:
        """Take a waiting sequence out. One that was served is charged to its tenant."""
        lane = self._lane_of.pop(sequence.spec.id)
        waiting = lane.by_model[sequence.spec.model]
        at = bisect_left(waiting, sequence.order, key=_order)
        assert at < len(waiting) and waiting[at] is sequence, f"{sequence} does not wait"
        del waiting[at]
        if not waiting:
            del lane.by_model[sequence.spec.model]
        lane.count -= 1
        lane.credit -= sequence.cost if served else 0
        if not lane.count:  # credit isn't saved up while nobody waits
            self._ring.remove(lane)
            del self._lanes[lane.tenant]

    def first(self, blocked: Container[str]) -> Sequence | None:
        """Whose turn it is among the models that aren't blocked. Asked again, the answer is the same."""
        at, ring = 0, self._ring
        while at < len(ring):
            lane = ring[at]
            head = lane.first(blocked)
            if head is None:
                at += 1
            elif head.cost <= lane.credit:
                return head
            else:
                lane.credit += self._quantum
                ring.append(ring.pop(at))
        return None

    def _lane_name(self, tenant: str) -> str:
        crowded = len(self._lanes) >= self._tenants_max - (CROWD not in self._lanes)
        return CROWD if crowded and tenant not in self._lanes else tenant
