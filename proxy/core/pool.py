"""What like edges have in common: how long their answers usually take, which of them are left out, what hedging costs.

Decides: what an outcome says about its edge. Must not know: links, messages, clocks (`now` is an argument).
Invariants: a client's own error, its leaving, and an edge's "no room" never count against an edge's health; an answer
counts as bad when it failed or took far longer than the pool's median for such requests; one that was given up, for a
hedge that won or a deadline, counts as bad when it had taken longer than PATIENCE of the pool's answers do.
"""

from __future__ import annotations

import msgspec

from nearsay.traffic.ejection import Ejector, slow_from_s
from nearsay.traffic.hedging import Hedging
from nearsay.traffic.latencies import Latencies
from nearsay.wire.messages import Priority, Tier, length_bucket
from proxy.core.limits import AttemptLimits

UNKNOWN_PATIENCE_S = 1.0  # while nothing is known of a pool


Kind = tuple[str, Tier, Priority, str]  # pair, tier, priority, length bucket
User = tuple[str, Priority]  # a tenant's bulk work is another user than its people are


class Work(msgspec.Struct, frozen=True):
    """What of a request matters to where and how it is tried."""

    pair: str
    tier: Tier
    priority: Priority
    chars: int
    kind: Kind  # requests of one kind take about as long
    user: User  # who shares edges with others
    streamed: bool = False
    session: bool = False

    @classmethod
    def of(
        cls,
        pair: str,
        tier: Tier,
        priority: Priority,
        chars: int,
        *,
        streamed: bool = False,
        session: bool = False,
        tenant: str = "",
    ) -> Work:
        """Of a request."""
        kind = pair, tier, priority, length_bucket(chars)
        return cls(pair, tier, priority, chars, kind, (tenant, priority), streamed, session)

    @property
    def repeatable(self) -> bool:
        """Whether asking twice at once does no harm: nothing reached the client, and no session is moved about."""
        return self.priority == "interactive" and not self.streamed and not self.session


class Pool:
    """Shared by the endpoints of one region."""

    def __init__(self, limits: AttemptLimits, now: float) -> None:
        self.limits = limits
        self.latencies = Latencies()
        self.ejector = Ejector(limits.ejection)
        self.hedging = Hedging(limits.hedging, self.latencies, now)

    def late_s(self, work: Work, now: float) -> tuple[float, float] | None:
        """Seconds after which an attempt is late, so that a second one may be worth its cost, and after which it is
        stuck, as good as failed; None: it is waited for."""
        late_s = self.hedging.delay_s(work.kind, now) if work.repeatable else None
        usual_s = self.latencies.quantile(work.kind, 0.5, now)
        if late_s is None or usual_s is None:
            return None
        return late_s, max(late_s, slow_from_s(usual_s, self.limits.ejection))

    def answered(self, work: Work, elapsed_s: float, now: float) -> bool:
        """Take in how long an answer took; whether that is bad. On a stream the time is the client's, too."""
        if work.streamed:
            return False
        usual_s = self.latencies.quantile(work.kind, 0.5, now)
        self.latencies.observe(work.kind, elapsed_s, now)
        return usual_s is not None and elapsed_s > slow_from_s(usual_s, self.limits.ejection)

    def given_up(self, work: Work, elapsed_s: float, now: float, *, heard: bool) -> bool | None:
        """Take in how long no answer came, if anything did (`heard`); whether it is bad, None when it says nothing."""
        if work.streamed and heard:
            return None
        patience_s = self.latencies.quantile(work.kind, self.limits.hedging.quantile, now)
        if elapsed_s < (UNKNOWN_PATIENCE_S if patience_s is None else patience_s):
            return None
        if not work.streamed:
            self.latencies.observe(work.kind, elapsed_s, now)
        return True
