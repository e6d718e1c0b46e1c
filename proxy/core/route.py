"""One request's way through the regions: asked anew for each attempt, told what came of it.

Decides: the edges that an attempt may choose from, in the order of their regions, and which error it is when none can.
Must not know: links, messages, which edge of a region (attempts.py), clocks (`now` is an argument).
Invariants: no edge of a region that the request's rules forbid ever comes out, by whatever way an attempt began; what
an attempt is said to have begun is said to have ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from nearsay.traffic.rendezvous import key_of
from nearsay.wire.errors import NearsayError, Unavailable
from proxy.core.endpoint import Endpoint, Outcome
from proxy.core.fleet import Features, Fleet
from proxy.core.routing import Decision, forward
from proxy.core.standing import Turn

AFFINITY_CHARS = 256  # of a text that count for where it meets its equals


def affinity(features: Features, text: str) -> int:
    """What should meet in one place: a session's requests, else equal texts of one tenant."""
    if features.session:
        return key_of(features.tenant, features.session)
    return key_of(features.tenant, features.pair, features.tier, str(features.chars), text[:AFFINITY_CHARS])


class Route:
    """Single writer of one request's decisions."""

    def __init__(self, features: Features, fleet: Fleet) -> None:
        self.features = features
        self.decision: Decision | None = None  # the latest
        self._fleet = fleet
        self._depths: dict[str, int] = {}

    @property
    def kind(self) -> object:
        """Equal for requests that may go to the same edges."""
        return self._fleet.class_of(self.features), self.features.tier, self.features.session

    def endpoints(self, now: float) -> list[Endpoint]:
        """Edges that an attempt may go to now, those of the best region first; none when no region can take it."""
        self.decision = forward(self.features, self._fleet, now)
        regions = self._fleet.regions
        return [endpoint for option in self.decision.options for endpoint in regions[option.region].endpoints]

    def allowed(self) -> list[Endpoint]:
        """Edges of all regions that the rules allow, whatever their state."""
        return [e for region in self._fleet.class_of(self.features).regions for e in region.endpoints]

    @property
    def full(self) -> bool:
        """Whether only room is wanting: some region that could serve it is at its limit, and no other one can."""
        assert self.decision is not None, "asked first"
        return not self.decision.options and "full" in self.decision.refused.values()

    @property
    def hopeless(self) -> bool:
        """Whether waiting for an edge can't help: where it could be served it must not go."""
        decision = self.decision
        assert decision is not None, "asked first"
        return not decision.options and decision.restricted and "down" not in decision.refused.values()

    def error(self, retry_after_ms: float) -> NearsayError:
        """Why no attempt could begin."""
        assert self.decision is not None, "asked first"
        if self.decision.restricted:
            detail = "no region that these texts may go to can serve this pair now"
            return Unavailable(detail, code="region_unavailable", retry_after_ms=retry_after_ms)
        detail = "no edge worker that serves this pair is connected and ready"
        return Unavailable(detail, code="edge_unavailable", retry_after_ms=retry_after_ms)

    def began(self, endpoint: Endpoint, *, hedge: bool = False) -> str:
        """An attempt goes there; why: as Decision.why, "spill_load" when the first region's edges had no room for it,
        "retry" or "hedge" when it isn't the first."""
        assert self.decision is not None, "asked first"
        decision = self.decision
        why = decision.why if endpoint.region == decision.region else "spill_load"
        self._fleet.took(self.features, endpoint.region, home=decision.home, probe=why == "probe")
        first = not self._depths
        self._depths[endpoint.name] = self._fleet.regions[endpoint.region].in_flight
        return why if first else "hedge" if hedge else "retry"

    def ended(self, endpoint: Endpoint, outcome: Outcome, now: float) -> Turn | None:
        """It ended; what became of its region by that."""
        return self._fleet.ended(endpoint, outcome, now)

    def answered(self, endpoint: Endpoint, accounted_ms: float, stages_ms: Mapping[str, float], now: float) -> None:
        """It ended with an answer: learn how long the region took."""
        self._fleet.answered(
            endpoint.region,
            self.features,
            accounted_ms=accounted_ms,
            stages_ms=stages_ms,
            depth=self._depths.get(endpoint.name, 0),
            now=now,
        )
