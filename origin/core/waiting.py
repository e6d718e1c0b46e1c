"""The queue in front of the slots.

Decides: the order in which sequences wait: interactive before batch, earliest deadline first within a class, and how
many of each class may wait, so that a flood of batch work can't shut interactive work out.
Must not know: slots, models' sizes, what happens after the wait.
Invariant: a sequence stands in at most one lane; a lane is sorted by `Sequence.order`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Mapping

from nearsay.wire.messages import Priority
from origin.core.sequence import Sequence

CLASSES: tuple[Priority, ...] = ("interactive", "batch")  # in the order in which they are served


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


class WaitingRoom:
    """Lanes of waiting sequences, one for each class and model. `limits`: how many may wait, per class."""

    def __init__(self, limits: Mapping[Priority, int]) -> None:
        self._limits = dict(limits)
        self._counts: dict[Priority, int] = dict.fromkeys(CLASSES, 0)
        self._lanes: dict[Priority, dict[str, list[Sequence]]] = {priority: {} for priority in CLASSES}

    def __len__(self) -> int:
        return sum(self._counts.values())

    def count(self, priority: Priority) -> int:
        """How many of a class wait."""
        return self._counts[priority]

    def full(self, priority: Priority) -> bool:
        return self._counts[priority] >= self._limits[priority]

    def add(self, sequence: Sequence) -> None:
        """Put a sequence in its place. The caller has asked `full` before."""
        assert not self.full(sequence.spec.priority)
        lane = self._lanes[sequence.spec.priority].setdefault(sequence.spec.model, [])
        insort(lane, sequence, key=_order)
        self._counts[sequence.spec.priority] += 1

    def remove(self, sequence: Sequence) -> None:
        """Take a waiting sequence out, wherever it stands."""
        lane = self._lanes[sequence.spec.priority][sequence.spec.model]
        at = bisect_left(lane, sequence.order, key=_order)
        assert at < len(lane) and lane[at] is sequence, f"{sequence} does not wait"
        del lane[at]
        self._counts[sequence.spec.priority] -= 1

    def first(self, blocked: Container[str]) -> Sequence | None:
        """Whose turn it is among the models that aren't blocked."""
        for lanes in self._lanes.values():
            heads = [lane[0] for model, lane in lanes.items() if lane and model not in blocked]
            if heads:
                return min(heads, key=_order)
        return None

    def expired(self, now: float) -> list[Sequence]:
        """All who waited past their deadline; they stay until removed."""
        late = []
        for lanes in self._lanes.values():
            for lane in lanes.values():
                for sequence in lane:
                    if sequence.spec.deadline > now:
                        break
                    late.append(sequence)
        return late
