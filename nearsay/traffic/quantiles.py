"""Quantiles of a stream of positive numbers in bounded memory.

Decides: which bucket a value falls into. Buckets grow geometrically, so that every quantile is within a fixed relative
error (DDSketch: Masson, Rim, Lee, VLDB 2019), and sketches of the same shape merge exactly.
Must not know: what is measured, units, time.
Invariants: the number of buckets is fixed by the shape; values outside [lowest, highest] count at the border, so that
count and sum stay exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


class QuantileSketch:
    """`relative_error` 0.02 with the default range needs at most 634 buckets."""

    def __init__(self, relative_error: float = 0.02, *, lowest: float = 1e-3, highest: float = 1e8) -> None:
        assert 0 < relative_error < 1 and 0 < lowest < highest
        self.shape = (relative_error, lowest, highest)
        self._gamma = (1 + relative_error) / (1 - relative_error)
        self._scale = 1 / math.log(self._gamma)
        self._lowest = lowest
        self._highest = highest
        self._buckets: dict[int, int] = {}
        self._below = 0  # values under `lowest`, zero and negative ones among them
        self.count = 0
        self.sum = 0.0

    @property
    def buckets_max(self) -> int:
        """How many buckets there can ever be."""
        return self._index(self._highest) - self._index(self._lowest) + 1

    def add(self, value: float) -> None:
        """Count one value. Raises ValueError for NaN and infinity."""
        if not math.isfinite(value):
            raise ValueError(f"not a finite number: {value}")
        self.count += 1
        self.sum += value
        if value < self._lowest:
            self._below += 1
            return
        index = self._index(min(value, self._highest))
        self._buckets[index] = self._buckets.get(index, 0) + 1

    def quantile(self, q: float) -> float:
        """Value at rank `q` in [0, 1] (nearest rank, lower); 0.0 when nothing was counted."""
        assert 0.0 <= q <= 1.0
        rank = q * (self.count - 1)
        seen = self._below
        if self.count == 0 or rank < seen:
            return 0.0
        for index in sorted(self._buckets):
            seen += self._buckets[index]
            if rank < seen:
                return self._middle(index)
        raise AssertionError("ranks end where counts do")

    def at_most(self, bounds: Iterable[float]) -> list[int]:
        """For each of the rising bounds, how many values are at most that (a value near a bound may fall either way,
        within the relative error)."""
        counts = []
        seen = self._below
        items = sorted(self._buckets.items(), reverse=True)
        for bound in bounds:
            while items and self._middle(items[-1][0]) <= bound:
                seen += items.pop()[1]
            counts.append(seen)
        return counts

    def export(self) -> tuple[int, float, dict[int, int]]:
        """All there is to know: how many values are under `lowest`, the sum of all, and the counts by bucket."""
        return self._below, self.sum, dict(self._buckets)

    @classmethod
    def of(cls, exported: tuple[int, float, dict[int, int]]) -> QuantileSketch:
        """A sketch of the default shape from what one of that shape exported."""
        sketch = cls()
        sketch._below, sketch.sum, sketch._buckets = exported[0], exported[1], dict(exported[2])
        sketch.count = sketch._below + sum(sketch._buckets.values())
        return sketch

    def merge(self, other: QuantileSketch) -> None:
        """Add all that another sketch of the same shape has counted."""
        assert self.shape == other.shape, "sketches of different shapes don't merge"
        self.count += other.count
        self.sum += other.sum
        self._below += other._below
        for index, count in other._buckets.items():
            self._buckets[index] = self._buckets.get(index, 0) + count

    def _index(self, value: float) -> int:
        """Bucket i holds (gamma^(i-1), gamma^i]."""
        return math.ceil(math.log(value) * self._scale)

    def _middle(self, index: int) -> float:
        """The value whose relative distance to both ends of the bucket is the same."""
        return 2 * math.pow(self._gamma, index) / (self._gamma + 1)
