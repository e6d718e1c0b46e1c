"""Rows of many lengths (sources, drafts), cut into batches that are padded little.

Padding is work thrown away, and small batches waste the weights that were fetched for them. Sorted by length, a batch
grows while its padded size stays within `waste_max` of its real tokens.
"""

from __future__ import annotations

from collections.abc import Sequence


def groups(lengths: Sequence[int], waste_max: float = 0.25) -> list[list[int]]:
    """Indices of `lengths`, each once, in groups of which the padded share is at most `waste_max`.

    Within a group the longest comes first. Lengths are at least 1.
    """
    result: list[list[int]] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[index]
        group = result[-1] if result else []
        padded = lengths[group[0]] * (len(group) + 1) if group else 0
        if group and padded - tokens - length <= waste_max * padded:
            group.append(index)
            tokens += length
        else:
            result.append([index])
            tokens = length
    return result
