"""Whose deadline has passed.

Decides: which sequences are late. Must not know: where they are, or what becomes of them.
Invariant: the heap holds every live sequence, and after a sweep no more than as many, and SLACK, that left.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from heapq import heapify, heappop, heappush

SLACK = 64  # of those that left, kept until the next sweep


class Deadlines:
    """A heap from which those that left are swept when they become too many."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, sequence_id: int, deadline: float) -> None:
        heappush(self._heap, (deadline, sequence_id))

    def passed(self, now: float, live: Container[int]) -> list[int]:
        """Live sequences whose deadline is now or was before. They are forgotten here."""
        late = []
        while self._heap and self._heap[0][0] <= now:
            _, sequence_id = heappop(self._heap)
            if sequence_id in live:
                late.append(sequence_id)
        return late

    def sweep(self, live: Collection[int]) -> None:
        """Keep the heap within twice the live sequences and some slack."""
        if len(self._heap) > 2 * len(live) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapify(self._heap)
