"""When requests of a load test are due, decided before the first is sent.

Pure: chance is an argument, no clock. Instants are seconds from the start, ascending, below the duration.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

Arrivals = Literal["poisson", "constant"]


def arrivals(kind: Arrivals, rate_per_s: float, duration_s: float, rng: random.Random) -> Iterator[float]:
    """Due instants. "poisson" has exponential gaps, as independent users do; "constant" has equal ones."""
    assert rate_per_s > 0 and duration_s >= 0
    return _poisson(rate_per_s, duration_s, rng) if kind == "poisson" else _constant(rate_per_s, duration_s)


def _poisson(rate_per_s: float, duration_s: float, rng: random.Random) -> Iterator[float]:
    due = rng.expovariate(rate_per_s)
    while due < duration_s:
        yield due
        due += rng.expovariate(rate_per_s)


def _constant(rate_per_s: float, duration_s: float) -> Iterator[float]:
    count = 0
    while (due := count / rate_per_s) < duration_s:  # a division each, so that no error adds up
        yield due
        count += 1
