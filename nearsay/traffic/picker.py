"""Power of two choices: of two endpoints drawn at random, the less loaded one.

Decides: which of n endpoints gets the next request.
Must not know: what an endpoint is, how its load is measured, where chance comes from.
Invariants: every index can be drawn; the more loaded of the two drawn is never returned; two loads are read, not n.
Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001: the longest queue falls
from log n / log log n to log log n, without the herd that "least loaded of all" sends to whoever looks idle.
"""

from __future__ import annotations

from collections.abc import Callable

Chance = Callable[[int], int]  # chance(n) is uniform in 0 .. n - 1: random.Random.randrange


def pick(count: int, load: Callable[[int], float], chance: Chance) -> int:
    """Index in 0 .. count - 1 of the chosen endpoint. `count` must be at least 1."""
    assert count >= 1
    if count == 1:
        return 0
    first = chance(count)
    second = chance(count - 1)
    if second >= first:
        second += 1
    return first if load(first) <= load(second) else second
