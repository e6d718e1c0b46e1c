"""The tries of one request: whom to ask, and whether to ask again.

Decides: the edge of the next attempt, and whether an error is answered by another attempt.
Must not know: links, streams, messages, clocks and chance (both are arguments).
Invariants: at most `attempts_max` tries; none after the first streamed word; none that the deadline has no room for or
the budget doesn't pay; an edge that said no isn't asked again, one whose link broke only when no other can be.
Extra attempts after Finagle's RetryFilter; the pick is P2C over peak EWMA (nearsay.traffic).
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.traffic.picker import Chance, pick
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Tier
from proxy.core.endpoint import Endpoint
from proxy.core.limits import AttemptLimits

# The edge is gone or going, not unwilling: it may be asked again once it is back.
GONE = frozenset({"link_lost", "unavailable", "draining"})


class Attempts:
    """Single writer of one request's tries."""

    def __init__(
        self, limits: AttemptLimits, budget: RetryBudget, deadline: Deadline, *, pair: str, tier: Tier
    ) -> None:
        self.deadline = deadline
        self.streamed = False  # set by the shell when anything has reached the client
        self.number = 0
        self._limits = limits
        self._budget = budget
        self._pair = pair
        self._tier = tier
        self._tried: set[str] = set()
        self._refused: set[str] = set()
        self._current = ""

    @property
    def left(self) -> int:
        """Attempts that may still follow this one; travels with it."""
        return max(0, self._limits.attempts_max - self.number)

    def choose(self, endpoints: Sequence[Endpoint], now: float, chance: Chance) -> Endpoint | None:
        """The edge of the next attempt, or None while no edge can take it."""
        able = self._able(endpoints)
        if not able:
            return None
        chosen = able[pick(len(able), lambda i: able[i].load(self._tier, now), chance)]
        self.number += 1
        self._current = chosen.name
        self._tried.add(chosen.name)
        return chosen

    def again(self, error: NearsayError, endpoints: Sequence[Endpoint], now: float) -> bool:
        """Whether the failed attempt is followed by another one; if so, it has been paid for."""
        if error.code not in GONE:
            self._refused.add(self._current)
        hopeful = any(e.name not in self._refused and e.serves(self._pair, self._tier) for e in endpoints)
        return (
            error.retryable
            and hopeful
            and not self.streamed
            and self.left > 0
            and self.deadline.leaves(self._limits.attempt_ms_min, now)
            and self._budget.withdraw(now)
        )

    def _able(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Edges that can take it now, narrowed to the best kind that there is."""
        able = [
            e for e in endpoints if e.available and e.name not in self._refused and e.serves(self._pair, self._tier)
        ]
        able = [e for e in able if e.name not in self._tried] or able
        if self._tier in ("origin", "refine"):
            able = [e for e in able if self._pair in e.origin_ready] or able
        return able
