"""Which rows of a model's cache are taken.

Decides: the slots that a new sequence gets: always the lowest free ones, so that the busy rows lie close together and
a step reads one short span of the cache.
Must not know: what lies in a slot, or who holds it.
Invariant: free and taken slots together are 0..size-1, each once.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class SlotPool:
    """`size` slots, handed out lowest first."""

    def __init__(self, size: int) -> None:
        assert size > 0
        self.size = size
        self._free = list(range(size))
        heapify(self._free)
        self._taken: set[int] = set()

    def __repr__(self) -> str:
        return f"<SlotPool {len(self._taken)} of {self.size} taken>"

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)

    def take(self, count: int) -> tuple[int, ...] | None:
        """The `count` lowest free slots in rising order, or None (and nothing taken) when there are fewer."""
        if count > len(self._free):
            return None
        slots = tuple(heappop(self._free) for _ in range(count))
        self._taken.update(slots)
        return slots

    def give(self, slots: Iterable[int]) -> None:
        """Return taken slots."""
        for slot in slots:
            assert slot in self._taken, f"slot {slot} was not taken"
            self._taken.remove(slot)
            heappush(self._free, slot)
