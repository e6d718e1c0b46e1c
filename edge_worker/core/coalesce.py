"""Equal segments in flight at once: who shares whose run, and what becomes of a run that nobody waits for any more.

Decides: whether a newcomer joins a run, and how long an abandoned one goes on.
Must not know: runs, models, texts (keys are opaque), clocks.
Invariants: only equal keys share, and a key names its tenant, so that nobody can tell what another tenant asked; a
further attempt of a request never joins a run that an earlier one waits for, or a hedge would wait for what it was
to overtake; a waiter that leaves takes its own reference only; a run that was never shared ends with its waiter, one
that was goes on for `grace_s`, since what several asked for is likely to be asked for again; at most `runs_max` runs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

R = TypeVar("R")


class CoalesceLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of what is shared. `runs_max` 0: nothing is."""

    runs_max: int = 4096
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        if self.runs_max < 0 or not 0 <= self.grace_s <= 10.0:
            raise ValueError("'runs_max' must not be negative, 'grace_s' must be 0 to 10")


class Who(msgspec.Struct, frozen=True):
    """One attempt of one request."""

    request_id: str
    attempt: int


class Flight(Generic[R]):
    """One run and its waiters. An attempt with equal segments waits as often."""

    __slots__ = ("key", "run", "shared", "waiters")

    def __init__(self, key: Hashable, run: R) -> None:
        self.key = key
        self.run = run
        self.waiters: list[Who] = []
        self.shared = False


class Coalescer(Generic[R]):
    """All runs that may be shared now."""

    def __init__(self, limits: CoalesceLimits) -> None:
        self._limits = limits
        self._flights: dict[Hashable, Flight[R]] = {}

    def __len__(self) -> int:
        """Runs."""
        return len(self._flights)

    def join(self, key: Hashable, who: Who) -> Flight[R] | None:
        """A run to wait for, if there is one for this attempt; `leave` follows."""
        flight = self._flights.get(key)
        if flight is None or any(w.request_id == who.request_id and w.attempt != who.attempt for w in flight.waiters):
            return None
        flight.waiters.append(who)
        flight.shared = True
        return flight

    def open(self, key: Hashable, who: Who, run: R) -> Flight[R]:
        """A new run with its first waiter; `leave` and `close` follow. Others find it when there is room for it."""
        flight = Flight(key, run)
        flight.waiters.append(who)
        if key not in self._flights and len(self._flights) < self._limits.runs_max:
            self._flights[key] = flight
        return flight

    def leave(self, flight: Flight[R], who: Who) -> float | None:
        """A waiter has its answer, or wants it no more. Seconds after which the run may be ended if it hasn't, and if
        nobody waits then; None: somebody does."""
        flight.waiters.remove(who)
        if flight.waiters:
            return None
        return self._limits.grace_s if flight.shared else 0.0

    def close(self, flight: Flight[R]) -> None:
        """The run is over, or given up: nobody joins it any more."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
