"""The tries of one request: whom to ask, and whether to ask again.

Decides: the edge of the next attempt, and whether an error is answered by another attempt.
Must not know: links, streams, messages, clocks and chance (both are arguments), how regions are ordered.
Invariants: no edge is asked that wasn't handed in; of untried ones those of the earliest region; at most `attempts_max`
tries; none after the first streamed word; none that the deadline has no room for or the budget doesn't pay; an edge
that said no isn't asked again, one whose link broke only when no other can be.
Extra attempts after Finagle's RetryFilter; the pick is P2C over peak EWMA (nearsay.traffic). With an `affinity` the two
edges compared are the first two of its key's order, so that equal texts meet in few places; a `session` stays with the
very first, where its state is. Both pass over an edge that has more than its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.traffic.picker import Chance, pick
from nearsay.traffic.rendezvous import capacity, ranked
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Tier
from proxy.core.endpoint import Endpoint
from proxy.core.limits import AttemptLimits

# The edge is gone or going, not unwilling: it may be asked again once it is back.
GONE = frozenset({"link_lost", "unavailable", "draining"})


class Attempts:
    """Single writer of one request's tries."""

    def __init__(
        self,
        limits: AttemptLimits,
        budget: RetryBudget,
        deadline: Deadline,
        *,
        pair: str,
        tier: Tier,
        affinity: int | None = None,
        session: bool = False,
    ) -> None:
        """`affinity`: the `key_of` what should meet in one place, None for nothing of the kind."""
        self.deadline = deadline
        self.streamed = False  # set by the shell when anything has reached the client
        self.number = 0
        self._limits = limits
        self._budget = budget
        self._pair = pair
        self._tier = tier
        self._affinity = affinity
        self._session = session
        self._tried: set[str] = set()
        self._refused: set[str] = set()
        self._current = ""

    @property
    def left(self) -> int:
        """Attempts that may still follow this one; travels with it."""
        return max(0, self._limits.attempts_max - self.number)

    def choose(self, endpoints: Sequence[Endpoint], now: float, chance: Chance) -> Endpoint | None:
        """The edge of the next attempt, or None while no edge can take it. `endpoints` come in the order of regions."""
        able = self._able(endpoints)
        if not able:
            return None
        if len(able) == 1:
            chosen = able[0]
        elif self._affinity is None:
            chosen = able[pick(len(able), lambda i: able[i].load(self._tier, now), chance)]
        else:
            chosen = self._by_key(self._affinity, able, now)
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
        return [e for e in able if e.region == able[0].region]

    def _by_key(self, key: int, able: list[Endpoint], now: float) -> Endpoint:
        """The first of the key's order with room: of a session itself, else the better one of the first two."""
        room = capacity(sum(e.in_flight for e in able), len(able))
        order = [able[i] for i in ranked(key, [e.node for e in able]) if able[i].in_flight < room]
        if self._session or len(order) == 1:
            return order[0]
        first, second = order[:2]
        return first if first.load(self._tier, now) <= second.load(self._tier, now) else second
