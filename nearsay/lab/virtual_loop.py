"""An asyncio event loop whose time is a number: it jumps to the next timer instead of waiting for it.

Everything that runs on it (links over memory transports, engines run inline) is deterministic: the same seed gives
the same interleaving. A loop with nothing left to wake it is a deadlock and raises, so a hang is a failing test.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
VIRTUAL_SECONDS_MAX = 3_600.0


class Deadlock(AssertionError):
    """Tasks are waiting and no timer will ever wake them."""


class _JumpingSelector(selectors.BaseSelector):
    """Polls the loop's own self-pipe without waiting, and moves the clock by what it was asked to wait."""

    def __init__(self) -> None:
        self._real = selectors.SelectSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self.now += max(timeout, 1e-9)
        if self.now > VIRTUAL_SECONDS_MAX:
            raise Deadlock(f"still running after {VIRTUAL_SECONDS_MAX:g} virtual seconds")
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time. Raises Deadlock when nothing can wake it any more."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
