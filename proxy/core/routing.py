"""The region of a request: `forward`.

Decides: in which order the regions that may serve a request are asked, and why the first one is the first.
Must not know: links, messages, which edge inside a region (attempts.py), clocks (`now` is an argument); it changes
nothing, so that a decision can be asked for without being made (`nearsay route explain`); `Fleet.took` makes it.
Invariants: only regions that residency and the pair's rules allow are ever named as an option; a region that is full or
has no edge for the request isn't one.

A request goes where it is expected back first: round trip + waiting + run time. Each class of requests has a home, its
fastest region by distance and run time alone, which another one must beat by `spill.margin_ms`; load moves single
requests, never the home, so that nothing flaps while two regions share a load. A session stays at home, where its state
is, until that is full or not well. Batch work prefers the cheapest region that is expected to meet half its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from nearsay.traffic.service_time import ServiceTime
from proxy.core.endpoint import Endpoint
from proxy.core.fleet import Features, Fleet, RegionState, RequestClass, work
from proxy.core.routing_config import Spill

Grade = Literal["open", "busy", "due", "away"]
# open: takes requests; busy: past spill.utilisation; due: was left, one request may try it; away: was left.
Why = Literal["fastest", "cheapest", "probe", "spill_load", "spill_health", "none"]
_ORDER: Mapping[Grade, int] = {"open": 0, "due": 0, "busy": 1, "away": 2}

UNKNOWN_RTT_S = 1.0  # what a region counts as whose distance nobody has measured yet
DEADLINE_SHARE = 0.5  # of a batch request's deadline that a cheap region may be expected to need
PROBE_EVERY = 100  # at most one request in so many goes where it isn't expected back first, to measure
PROBE_AGE_S = 2.0  # and only to a region that has answered nothing for so long


class Option(msgspec.Struct, frozen=True):
    """One region that could serve the request now."""

    region: str
    grade: Grade
    rtt_ms: float
    run_ms: float
    wait_ms: float
    in_flight: int
    utilisation: float  # of the region's in_flight_max
    cost: float
    second_best: bool = False  # the origin that it wants isn't linked there, or would stand in for an edge model

    @property
    def expected_ms(self) -> float:
        """When the answer is expected back."""
        return self.rtt_ms + self.wait_ms + self.run_ms


class Decision(msgspec.Struct, frozen=True):
    """`options` best first, none when the request can't be served now; `refused` has all other regions and why not."""

    options: tuple[Option, ...]
    why: Why
    home: str
    refused: dict[str, str]
    restricted: bool  # residency forbids some region

    @property
    def region(self) -> str:
        """Where it goes; "" = nowhere."""
        return self.options[0].region if self.options else ""


def forward(features: Features, fleet: Fleet, now: float) -> Decision:
    """Where a request goes, and what comes after that. Never raises."""
    known, spill = fleet.class_of(features), fleet.config.spill
    options, refused = _survey(features, known, spill, now)
    if len(fleet.regions) == 1 and options and options[0].grade in ("open", "busy"):  # there is nothing to weigh
        why: Why = "cheapest" if features.priority == "batch" else "fastest"
        return Decision(tuple(options), why, options[0].region, refused, known.restricted)
    refused |= known.barred
    home = _home(features, known, options, refused, spill)
    if not options:
        return Decision((), "none", home, refused, known.restricted)
    options.sort(key=lambda option: _rank(option, features, home, spill))
    probe = _probe(features, fleet, options, now)
    if probe is not None:
        options.remove(probe)
        options.insert(0, probe)
    why = "probe" if probe is not None else _why(features, options, home, refused)
    return Decision(tuple(options), why, home, refused, known.restricted)


def _survey(features: Features, known: RequestClass, spill: Spill, now: float) -> tuple[list[Option], dict[str, str]]:
    options: list[Option] = []
    refused: dict[str, str] = {}
    units = work(features.chars)
    prior_s = _prior_s(features, known)
    busy_from = 1.0 if features.session else spill.utilisation  # a session's state is where it was
    for region in known.regions:
        reach = _reach(features, region.endpoints)
        in_flight = region.in_flight
        utilisation = in_flight / region.config.in_flight_max
        if isinstance(reach, str):
            refused[region.name] = reach
            continue
        if utilisation >= 1.0:
            refused[region.name] = "full"
            continue
        rtt_s, as_asked = reach
        times = region.times[features.kind]
        run_s = prior_s if times.observed_at is None else times.run_s
        options.append(
            Option(
                region.name,
                _grade(region, utilisation, busy_from, spill, now),
                rtt_s * 1e3,
                run_s * units * 1e3,
                times.wait_s(in_flight, now) * 1e3,
                in_flight,
                utilisation,
                region.config.cost,
                not as_asked,
            )
        )
    return options, refused


def _reach(features: Features, endpoints: tuple[Endpoint, ...]) -> tuple[float, bool] | str:
    """The best link's round trip and whether it can be done as asked; or what is missing."""
    best, able, served, as_asked = UNKNOWN_RTT_S, False, False, False
    for endpoint in endpoints:
        ready = features.pair in endpoint.origin_ready
        serves = endpoint.serves(features.pair, features.tier)
        served = served or serves
        if endpoint.available and (serves or (features.tier == "edge" and ready)):
            able = True
            as_asked = as_asked or (ready if features.kind == "origin" else serves)
            if endpoint.rtt_s is not None and endpoint.rtt_s < best:
                best = endpoint.rtt_s
    if able:
        return best, as_asked
    return "down" if served or not any(endpoint.available for endpoint in endpoints) else "unserved"


def _grade(region: RegionState, utilisation: float, busy_from: float, spill: Spill, now: float) -> Grade:
    if not region.standing.well:
        return "due" if region.standing.due(now, spill.recovery_s) else "away"
    return "busy" if utilisation >= busy_from else "open"


def _prior_s(features: Features, known: RequestClass) -> float:
    """Run time of a region that has answered nothing yet: as in the others, so that distance decides."""
    measured = [t.run_s for t in (region.times[features.kind] for region in known.regions) if t.observed_at is not None]
    return sum(measured) / len(measured) if measured else 0.0


def _home(features: Features, known: RequestClass, options: list[Option], refused: dict[str, str], spill: Spill) -> str:
    """The class's home: kept unless another region that is well is nearer and quicker by the margin, load left out."""
    units = work(features.chars)
    batch = features.priority == "batch"

    def base(option: Option) -> tuple[float, float]:
        return option.cost if batch else 0.0, option.rtt_ms + option.run_ms / units

    candidates = [option for option in options if option.grade in ("open", "busy")]
    best = min(candidates, key=base, default=None)
    if best is None or known.home == best.region:
        return known.home
    current = next((option for option in candidates if option.region == known.home), None)
    if current is None:
        gone = not known.home or refused.get(known.home) == "unserved" or known.home in known.barred
        return best.region if gone else known.home
    cost, ms = base(best)
    return best.region if (cost, ms + spill.margin_ms) < base(current) else known.home


def _rank(option: Option, features: Features, home: str, spill: Spill) -> tuple[float, ...]:
    """What options are sorted by, lowest first."""
    order = _ORDER[option.grade]
    if order == 1:  # equals, whatever their distance: the emptier one
        return option.second_best, order, option.utilisation, option.expected_ms
    away = option.region != home
    expected_ms = option.expected_ms + (spill.margin_ms if away else 0.0)
    if features.session:
        return option.second_best, order, away, expected_ms
    if features.priority == "interactive":
        return option.second_best, order, expected_ms
    late = option.expected_ms > features.deadline_ms * DEADLINE_SHARE
    return option.second_best, order, late, 0.0 if late else option.cost, expected_ms


def _probe(features: Features, fleet: Fleet, options: list[Option], now: float) -> Option | None:
    """A region that only old figures keep from being the first: it is near enough, but nobody has asked it lately."""
    if fleet.since_probe < PROBE_EVERY or features.session:
        return None
    first, spill = options[0], fleet.config.spill
    if first.expected_ms + UNKNOWN_RTT_S * 1e3 > features.deadline_ms * DEADLINE_SHARE:
        return None  # no room for a surprise

    def age_s(times: ServiceTime) -> float:
        return float("inf") if times.observed_at is None else now - times.observed_at

    stale = [
        (age_s(fleet.regions[option.region].times[features.kind]), option)
        for option in options[1:]
        if option.grade == "open"
        and option.second_best == first.second_best
        and option.rtt_ms + spill.margin_ms < first.expected_ms
    ]
    stale = [(age, option) for age, option in stale if age >= PROBE_AGE_S]
    return max(stale, key=lambda entry: entry[0])[1] if stale else None


def _why(features: Features, options: list[Option], home: str, refused: dict[str, str]) -> Why:
    first = options[0]
    if first.grade == "due":
        return "probe"
    if first.region == home or not home:
        return "cheapest" if features.priority == "batch" else "fastest"
    at_home = next((option for option in options if option.region == home), None)
    if at_home is None:
        return "spill_load" if refused.get(home) == "full" else "spill_health"
    return "spill_health" if at_home.grade in ("due", "away") or at_home.second_best else "spill_load"
