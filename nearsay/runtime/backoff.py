"""How long to wait before the next try: doubling from min to max, each jittered by half so that peers don't march."""

from __future__ import annotations

import random


class Backoff:
    """Exponential back-off with equal jitter. `rng` is the only chance in it."""

    def __init__(self, min_s: float, max_s: float, rng: random.Random) -> None:
        assert 0 < min_s <= max_s
        self._min_s = min_s
        self._max_s = max_s
        self._rng = rng
        self._next_s = min_s

    def next(self) -> float:
        """Seconds to wait now: between half and all of the current step."""
        step, self._next_s = self._next_s, min(self._next_s * 2, self._max_s)
        return step * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked: start again from the minimum."""
        self._next_s = self._min_s
