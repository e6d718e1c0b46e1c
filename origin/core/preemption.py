"""Which running batch sequences give up their slots to interactive work.

Decides: who is evicted. An evicted sequence goes back to the queue with what it has produced; when it gets slots again
its source is encoded anew (or found among the kept encodings) and the produced ids are replayed in one pass, so its ids
are those of an undisturbed run. A beam has produced nothing before its end: it starts again, and its steps are lost.
Must not know: who needs the slots.
Rules: nobody more than `evictions_max` times, nobody who is kept; those who lose no step before beams, those with the
least to lose or to replay first; nobody whose slots aren't needed, and nobody at all if it would not be enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from origin.core.sequence import Sequence


def victims(running: Iterable[Sequence], slots: int, evictions_max: int) -> list[Sequence]:
    """Batch sequences that free at least `slots` slots when they leave; none if there aren't enough."""
    evictable = [s for s in running if not s.kept and s.evictions < evictions_max]
    evictable.sort(key=lambda sequence: (sequence.at_stake, len(sequence.produced), -sequence.spec.id))
    chosen: list[Sequence] = []
    lacking = slots
    while lacking > 0:
        if not evictable:
            return []
        chosen.append(evictable.pop(0))
        lacking -= len(chosen[-1].slots)
    for sequence in chosen[:-1]:  # whom a wide beam after them made needless
        if lacking + len(sequence.slots) <= 0:
            chosen.remove(sequence)
            lacking += len(sequence.slots)
    return chosen
