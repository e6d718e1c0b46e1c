"""The queue in front of the slots.

Decides: how many of each class and tenant may wait, so that neither a flood of batch work nor one loud tenant can shut
the others out.
Must not know: slots, models' sizes, what happens after the wait.
Invariants: a sequence stands in one line only; counts are those of the sequences that stand.
Not here: the order within a class (fairness.py), nor which class goes first (scheduler.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from nearsay.wire.messages import Priority
from origin.core.fairness import TenantRing
from origin.core.sequence import Sequence

CLASSES: tuple[Priority, ...] = ("interactive", "batch")


class Queued:
    """What waits for a model in one class: sequences, the rows they will need, the tokens to be read for them."""

    __slots__ = ("rows", "sequences", "tokens")

    def __init__(self) -> None:
        self.sequences = self.rows = self.tokens = 0

    def count(self, sequence: Sequence, sign: int) -> None:
        self.sequences += sign
        self.rows += sign * sequence.spec.width
        self.tokens += sign * sequence.reads


class WaitingRoom:
    """`limits`: how many may wait, per class; a tenant may take `tenant_share_max` of them."""

    def __init__(
        self,
        limits: Mapping[Priority, int],
        *,
        tenant_quantum: int = 256,
        tenants_max: int = 256,
        tenant_share_max: float = 0.75,
    ) -> None:
        self._limits = dict(limits)
        self._rings = {
            priority: TenantRing(
                quantum=tenant_quantum, tenants_max=tenants_max, tenant_max=max(1, int(limit * tenant_share_max))
            )
            for priority, limit in limits.items()
        }
        self._queued: dict[Priority, dict[str, Queued]] = {priority: {} for priority in limits}

    def __len__(self) -> int:
        return sum(map(len, self._rings.values()))

    def count(self, priority: Priority) -> int:
        """How many of a class wait."""
        return len(self._rings[priority])

    def queued(self, priority: Priority, model: str) -> Queued:
        """What waits for a model in a class."""
        return self._queued[priority].get(model) or Queued()

    def full(self, priority: Priority, tenant: str = "") -> bool:
        """Whether another one must be turned away."""
        ring = self._rings[priority]
        return len(ring) >= self._limits[priority] or ring.full(tenant)

    def add(self, sequence: Sequence) -> None:
        """Put a sequence in its place. For a newcomer `full` has been asked before; of those that gave up their slots
        there are no more than slots."""
        spec = sequence.spec
        self._rings[spec.priority].add(sequence)
        self._queued[spec.priority].setdefault(spec.model, Queued()).count(sequence, 1)

    def remove(self, sequence: Sequence, *, served: bool = False) -> None:
        """Take a waiting sequence out, wherever it stands; charge its tenant if it is served."""
        spec = sequence.spec
        self._rings[spec.priority].remove(sequence, served=served)
        queued = self._queued[spec.priority][spec.model]
        queued.count(sequence, -1)

    def first(self, priority: Priority, blocked: Container[str]) -> Sequence | None:
        """Whose turn it is in a class, among the models that aren't blocked."""
        waits = self._queued[priority].items()
        if not any(queued.sequences and model not in blocked for model, queued in waits):
            return None
        return self._rings[priority].first(blocked)

    def forget(self, model: str) -> None:
        """Nobody waits for a model, nor will."""
        for queued in self._queued.values():
            gone = queued.pop(model, None)
            assert gone is None or not gone.sequences, model
