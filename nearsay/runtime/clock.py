"""Time as an argument: monotonic seconds, `time.monotonic` in production, a number in simulations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]


def wall_clock() -> float:
    """Seconds since the epoch: for the one thing that clocks of two machines must agree on, the end of a grant."""
    return datetime.now(UTC).timestamp()
