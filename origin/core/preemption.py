"""Which running batch sequences give up their slots to interactive work.

Decides: who is evicted. An evicted sequence goes back to the queue with what it has produced; when it gets slots again
its source is encoded anew and the produced ids are replayed in one pass, so its ids are those of an undisturbed run.
Must not know: who needs the slots.
Rules: greedy sequences only (a beam's hypotheses can't be replayed; a beam pauses); nobody more than `evictions_max`
times, nobody who is kept; those with the least to replay first; nobody at all if it would not be enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from origin.core.sequence import Sequence


def victims(running: Iterable[Sequence], slots: int, evictions_max: int) -> list[Sequence]:
    """Batch sequences that free at least `slots` slots when they leave; none if there aren't enough."""
    evictable = [s for s in running if len(s.slots) == 1 and not s.kept and s.evictions < evictions_max]
    if len(evictable) < slots:
        return []
    evictable.sort(key=lambda sequence: (len(sequence.produced), -sequence.spec.id))
    return evictable[:slots]
