"""A decision in words: which region, why, what was second, and at which load the request would go there.

Decides: nothing. It asks `forward`, also with more in flight than there is, and says what came out.
Must not know: where the fleet comes from (a running proxy's view, or assumptions), clocks (`now` is an argument).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.core.fleet import Features, Fleet
from proxy.core.routing import Decision, Option, Why, forward

WHYS: Mapping[Why, str] = {
    "fastest": "the answer is expected back first from there",
    "cheapest": "batch work goes to the cheapest region that is in time",
    "probe": "one request goes there to find out how it is",
    "spill_load": "{home}, where such requests go, is too busy",
    "spill_health": "{home}, where such requests go, is not well",
    "none": "no region can take it",
}
REFUSALS = {
    "down": "has no edge that is up and serves this",
    "unserved": "has no model for this",
    "full": "is at its in_flight_max",
    "tenant": "is not among the tenant's regions",
    "residency": "is not among the regions for the client's country",
    "unknown": "may be closed to the client, whose country isn't known",
    "pair": "is not among the pair's regions",
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`region` "" = nowhere. `spills_at`: requests in flight in `region` with which the next would go to `second`."""

    region: str
    why: Why
    second: str
    spills_at: int | None
    routing: str
    decision: Decision

    def lines(self) -> list[str]:
        """For people."""
        because = WHYS[self.why].format(home=self.decision.home)
        said = [f"{self.region or 'nowhere'}: {because}  (routing {self.routing})"]
        for number, option in enumerate(self.decision.options):
            said.append(f"  {number + 1}. {_shown(option)}")
        said += [f"  -  {name} {REFUSALS[reason]}" for name, reason in sorted(self.decision.refused.items())]
        if self.spills_at is not None:
            said.append(f"with {self.spills_at} requests in flight in {self.region} it would go to {self.second}")
        return said


def explain(features: Features, fleet: Fleet, now: float) -> Explanation:
    """What `forward` says of a request, and from where on it would say something else.

    The fleet must be the caller's own (fleet_view.restored): what is in flight in it is changed for a moment.
    """
    decision = forward(features, fleet, now)
    return Explanation(
        region=decision.region,
        why=decision.why,
        second=decision.options[1].region if len(decision.options) > 1 else "",
        spills_at=_spills_at(features, fleet, decision, now),
        routing=fleet.label,
        decision=decision,
    )


def _spills_at(features: Features, fleet: Fleet, decision: Decision, now: float) -> int | None:
    """The least number in flight in the first region with which another one is first; None when there is no other."""
    if len(decision.options) < 2:
        return None
    region = fleet.regions[decision.region]
    endpoint, before = region.endpoints[0], region.endpoints[0].in_flight
    held = region.in_flight - before

    def stays(in_flight: int) -> bool:
        endpoint.in_flight = in_flight - held
        return forward(features, fleet, now).region == decision.region

    low, high = held + before, max(held + before, region.config.in_flight_max)  # at its limit it surely spills
    try:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if stays(middle) else (low, middle)
        return high
    finally:
        endpoint.in_flight = before


def _shown(option: Option) -> str:
    ms = f"{option.rtt_ms:.1f} ms away + {option.wait_ms:.1f} waiting + {option.run_ms:.1f} running"
    load = f"{option.in_flight} in flight, {option.utilisation:.0%} of its limit"
    grade = "" if option.grade == "open" else f", {option.grade}"
    lacks = ", second best" if option.second_best else ""
    return f"{option.region}: {option.expected_ms:.1f} ms = {ms}; {load}; cost {option.cost:g}{grade}{lacks}"
