"""Bounded rendezvous hashing: equal keys go to one node, in every process, without a table and without a hot spot.

Decides: in which order nodes are asked for a key, and how many requests a node may hold before the key goes on.
Must not know: what a key or a node is, clocks, chance.
Invariants: a node that leaves moves only its own keys, one that joins takes keys only to itself; all nodes at
`capacity` would hold more than there is, so one under it can always be found.
Thaler, Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM ToN 6(1), 1998. The bound is Mirrokni,
Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil

MASK = (1 << 64) - 1
BALANCE = 1.25  # times the mean load that a node may have
SLACK = 8  # requests that a node may always have: with little load, moving a key gains nothing


def key_of(*parts: str) -> int:
    """64 bits, the same in every process, unlike `hash`. Parts are kept apart: ("ab", "c") is not ("a", "bc")."""
    whole = "".join([f"{len(part)}:{part}" for part in parts])
    return int.from_bytes(blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def ranked(key: int, nodes: Sequence[int]) -> list[int]:
    """Indices of `nodes`, each node a `key_of` its name, in the order in which this key asks them."""
    if len(nodes) == 1:
        return [0]
    # A multiplication by 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4) mixes enough: both sides are hashes already.
    scores = [((key ^ node) * 0x9E3779B97F4A7C15) & MASK for node in nodes]
    return sorted(range(len(nodes)), key=scores.__getitem__, reverse=True)


def capacity(total: int, nodes: int) -> int:
    """How many requests one of `nodes` may hold while all hold `total` and one more comes."""
    assert nodes >= 1 and total >= 0
    return max(SLACK, ceil(BALANCE * (total + 1) / nodes))
