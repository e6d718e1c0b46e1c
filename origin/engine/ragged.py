"""Rows of many lengths (sources, drafts), cut into batches at the least cost.

A padded row costs as much as its batch's longest, and every batch costs a fetch of the weights, as much as reading
`batch_tokens` tokens. Sorted by length, the best cut is found exactly by dynamic programming over the distinct lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def groups(lengths: Sequence[int], batch_tokens: float = 16.0, rows: Sequence[int] | None = None) -> list[list[int]]:
    """Indices of `lengths`, each once, in groups whose sum of batch_tokens + longest * rows is least.

    rows: how many rows each index stands for (default 1). Within a group the longest comes first. Lengths are at
    least 1.
    """
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    runs = [list(run) for _, run in groupby(order, key=lengths.__getitem__)]
    if len(runs) == 1:
        return runs
    counts = [len(run) if rows is None else sum([rows[index] for index in run]) for run in runs]
    return [
        [index for run in runs[first:end] for index in run] for first, end in _cuts(runs, counts, lengths, batch_tokens)
    ]


def _cuts(
    runs: Sequence[Sequence[int]], counts: Sequence[int], lengths: Sequence[int], batch_tokens: float
) -> list[tuple[int, int]]:
    """(first, end) of each group of runs; runs are sorted, longest first, and have counts[i] rows."""
    best = [0.0]  # of the first i runs
    begun = [0]  # where their last group begins
    for end in range(1, len(runs) + 1):
        cost, rows, first = float("inf"), 0, end - 1
        for begin in range(end - 1, -1, -1):
            rows += counts[begin]
            whole = best[begin] + batch_tokens + lengths[runs[begin][0]] * rows
            if whole < cost:
                cost, first = whole, begin
        best.append(cost)
        begun.append(first)
    cuts: list[tuple[int, int]] = []
    end = len(runs)
    while end:
        cuts.append((begun[end], end))
        end = begun[end]
    return cuts[::-1]
