"""The tries of one request: whom to ask, whether to ask again, and whether to ask a second one while the first is late.

Decides: the edge of the next attempt, whether an error is answered by another one, and whether a late one is hedged.
Must not know: links, streams, messages, clocks and chance (both are arguments), how regions are ordered.
Invariants: no edge is asked that wasn't handed in; of untried ones those of the earliest region that has room; at most
`attempts_max` tries; none that the deadline has no room for or a budget doesn't pay; an edge that said no isn't asked
again, one whose link broke only when no other can be; what was streamed goes on only with models that it began with,
where any edge has them; a hedge never goes where another try of the request has been.
Extra attempts after Finagle's RetryFilter and BackupRequestFilter; the pick is P2C over peak EWMA (nearsay.traffic).
With an `affinity` the two edges compared are the first two of its key's order, so that equal texts meet in few places;
a session stays with the very first, where its state is. Both pass over an edge that has more than its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.traffic.ejection import panics
from nearsay.traffic.picker import Chance, pick
from nearsay.traffic.rendezvous import capacity, ranked
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Tier
from proxy.core.endpoint import Endpoint, Permit
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Work

# The edge is gone or going, not unwilling: it may be asked again once it is back.
GONE = frozenset({"link_lost", "unavailable", "draining"})


class Attempts:
    """Single writer of one request's tries."""

    def __init__(
        self,
        limits: AttemptLimits,
        budget: RetryBudget,
        deadline: Deadline,
        work: Work,
        affinity: int | None = None,
    ) -> None:
        """`affinity`: the `key_of` what should meet in one place, None for nothing of the kind."""
        self.deadline = deadline
        self.work = work
        self.number = 0
        self.full = False  # the last `choose` found edges that could take it, but for their limits
        self.models: frozenset[str] = frozenset()  # set by the shell: of what the client has been shown
        self._limits = limits
        self._budget = budget
        self._affinity = affinity
        self._tried: set[str] = set()
        self._refused: set[str] = set()

    @property
    def left(self) -> int:
        """Attempts that may still follow this one; travels with it."""
        return max(0, self._limits.attempts_max - self.number)

    def choose(self, endpoints: Sequence[Endpoint], now: float, chance: Chance) -> Permit | None:
        """The place of the next attempt, or None while no edge can take it: for want of room when `full`.

        `endpoints` come in the order of regions.
        """
        able, tier = self._able(endpoints)
        due = self._due(able, now)
        if due is not None:
            return self._begin(due, tier, now)
        places = self._places(able, endpoints, tier, now)
        self.full = bool(able) and not places
        return self._begin(self._pick(places, tier, now, chance), tier, now) if places else None

    def waits_for_room(self, endpoints: Sequence[Endpoint], now: float) -> bool | None:
        """Whether only room is wanting now; None when nobody could take it even then."""
        able, tier = self._able(endpoints)
        return not self._places(able, endpoints, tier, now) if able else None

    def hedge(self, endpoints: Sequence[Endpoint], now: float, chance: Chance, *, stuck: bool = False) -> Permit | None:
        """A second place for a request that is late, if there is one and the pool's budget pays for it.

        One that is `stuck` would be retried if it failed instead: the budget of retries pays, too, and another region
        comes first, since all of a region may have gone silent.
        """
        timely = self.left > 0 and self.deadline.leaves(self._limits.attempt_ms_min, now)
        if self._limits.hedging.mode != "on" or not (self.work.repeatable and timely):
            return None
        able, tier = self._able(endpoints)
        if stuck:
            tried = {endpoint.region for endpoint in able if endpoint.name in self._tried}
            able.sort(key=lambda endpoint: endpoint.region in tried)
        places = [e for e in self._places(able, endpoints, tier, now) if e.name not in self._tried and not e.ejected]
        if not places or not (places[0].pool.hedging.pay(now) or (stuck and self._budget.withdraw(now))):
            return None
        return self._begin(_lightest(places, tier, now, chance), tier, now)

    def failed(self, endpoint: Endpoint, error: NearsayError) -> None:
        """A try ended so."""
        if error.code not in GONE:
            self._refused.add(endpoint.name)

    def again(self, error: NearsayError, endpoints: Sequence[Endpoint], now: float) -> bool:
        """Whether the failed attempt is followed by another one; if so, it has been paid for."""
        return (
            error.retryable
            and any(e.name not in self._refused and self._could(e) for e in endpoints)
            and self.left > 0
            and self.deadline.leaves(self._limits.attempt_ms_min, now)
            and self._budget.withdraw(now)
        )

    def _begin(self, endpoint: Endpoint, tier: Tier, now: float) -> Permit:
        self.number += 1
        self._tried.add(endpoint.name)
        return endpoint.begin(self.work, tier, now)

    def _could(self, endpoint: Endpoint) -> bool:
        """Whether it can answer once it is up, or stand in for one that can."""
        pair, tier = self.work.pair, self.work.tier
        return endpoint.serves(pair, tier) or (tier == "edge" and pair in endpoint.origin_ready)

    def _able(self, endpoints: Sequence[Endpoint]) -> tuple[list[Endpoint], Tier]:
        """Edges that can take it now, narrowed to the best kind that there is, and the tier to ask them for.

        Where no edge with a model of its own is left, one that has an origin stands in.
        """
        pair, tier = self.work.pair, self.work.tier
        willing = [e for e in endpoints if e.available and e.name not in self._refused]
        able = [e for e in willing if e.serves(pair, tier)]
        if tier == "edge" and not able:
            able, tier = [e for e in willing if pair in e.origin_ready], "origin"
        elif tier in ("origin", "refine"):
            able = [e for e in able if pair in e.origin_ready] or able
        if self.models:
            able = [e for e in able if e.has_models(self.models)] or able
        return able, tier

    def _due(self, able: Sequence[Endpoint], now: float) -> Endpoint | None:
        """An ejected edge of the first region that this request is to try again."""
        if self.number or self.work.streamed:
            return None
        return next((e for e in able if e.region == able[0].region and e.due(now)), None)

    def _places(
        self, able: Sequence[Endpoint], endpoints: Sequence[Endpoint], tier: Tier, now: float
    ) -> list[Endpoint]:
        """Able edges with room, of the first region that has an untried one, else of the first that has any."""
        tried: list[Endpoint] = []
        for region in dict.fromkeys(endpoint.region for endpoint in able):
            members = [endpoint for endpoint in endpoints if endpoint.region == region]
            fit = self._fit([endpoint for endpoint in able if endpoint.region == region], members)
            roomy = [endpoint for endpoint in fit if endpoint.has_room(tier, self.work.user, now)]
            if fresh := [endpoint for endpoint in roomy if endpoint.name not in self._tried]:
                return fresh
            tried = tried or roomy
        return tried

    def _fit(self, able: list[Endpoint], members: Sequence[Endpoint]) -> list[Endpoint]:
        """The able ones of a region's members that aren't ejected; all of them when too few would be left."""
        fit = [endpoint for endpoint in able if not endpoint.ejected]
        if len(fit) == len(able):
            return able
        could = sum(self._could(endpoint) for endpoint in members)
        return able if panics(len(fit), could, self._limits.ejection) else fit

    def _pick(self, places: list[Endpoint], tier: Tier, now: float, chance: Chance) -> Endpoint:
        if len(places) == 1 or self._affinity is None:
            return _lightest(places, tier, now, chance)
        room = capacity(sum(e.in_flight for e in places), len(places))
        nodes = [endpoint.node for endpoint in places]
        order = [places[i] for i in ranked(self._affinity, nodes) if places[i].in_flight < room]
        if self.work.session or len(order) == 1:
            return order[0]
        first, second = order[:2]
        return first if first.load(tier, now) <= second.load(tier, now) else second


def _lightest(endpoints: Sequence[Endpoint], tier: Tier, now: float, chance: Chance) -> Endpoint:
    return endpoints[pick(len(endpoints), lambda index: endpoints[index].load(tier, now), chance)]
