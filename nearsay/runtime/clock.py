"""Time as an argument: monotonic seconds, `time.monotonic` in production, a number in simulations."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]
