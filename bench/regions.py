"""Case regions: where `forward` sends requests in a simulated world, beside where they would have been answered first.

Three regions of four edges, at distances that differ, on virtual time: edges are queues, requests a Poisson stream.
Trouble comes to the nearest region, one after the other with rest between: a noisy neighbour that makes it slow, a
longer path, its end and its return. At each request the simulator knows all queues, and so the region that is truly
fastest.
More load than the nearest region can take is measured by itself, as time lost: when a region has filled up until the
next one is as good, which of the two is faster is a matter of the very next request.
The other figure is what one decision costs: features, `forward` and `Fleet.took`, in processor time of this machine.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from bench.report import Measure, Note, write_result
from nearsay.wire.messages import Hello, LoadReport, ModelInfo
from nearsay.wire.round_trip import RoundTrip
from proxy.core.endpoint import Endpoint
from proxy.core.fleet import Features, Fleet
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool
from proxy.core.routing import forward
from proxy.core.routing_config import Region, RoutingConfig

RTT_S = {"eu": 0.010, "us": 0.090, "ap": 0.180}
NEAREST = "eu"
EDGES = 4  # in each region; an edge does some 80 requests a second
RUN_S = 0.012
RATE_PER_S = 120.0
CROWD_PER_S = 400.0  # more than one region does
REST_S = 180.0
TROUBLE_S = 60.0
SLOW = 20.0  # times the run time beside a noisy neighbour
FAR_S = 0.2  # the longer path
PING_S = 1.0
RECONNECT_S = 0.5
GONE_S = 1.0  # what a request to a region that is gone counts as
SEEDS = 3
SHARE_FLOOR, SHARE_TARGET = 0.97, 0.99
LOST_FLOOR_MS, LOST_TARGET_MS = 10.0, 5.0
DECISION_FLOOR_US, DECISION_TARGET_US = 40.0, 20.0
DECISIONS, ROUNDS = 2_000, 15
PAIR = "en-de"
MODEL = ModelInfo("m", "1", "en", "de", "edge", "", "")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--region-seeds", type=int, default=SEEDS)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    worlds = [troubled(seed) for seed in range(options.region_seeds)]
    crowds = [crowded(seed) for seed in range(options.region_seeds)]
    sent = sum(sum(world.sent.values()) for world in worlds)
    measures = [
        Measure("share_fastest", share(worlds), "", SHARE_FLOOR, SHARE_TARGET, "higher"),
        Measure("flaps_after_recovery", sum(world.flaps for world in worlds), "", 0, 0, "lower"),
        Measure("failed_requests", sum(world.failed for world in (*worlds, *crowds)), "", 0, 0, "lower"),
        Measure("crowd_lost_ms", lost_ms(crowds, "crowd"), "ms", LOST_FLOOR_MS, LOST_TARGET_MS, "lower"),
        Measure("decision_us", decision_us(worlds[0]), "us", DECISION_FLOOR_US, DECISION_TARGET_US, "lower"),
    ]
    notes: dict[str, Note] = {"requests": sent, "regions": len(RTT_S), "edges": EDGES * len(RTT_S)}
    for phase in worlds[0].sent:
        notes[f"share_fastest_{phase}"] = round(share(worlds, phase), 4)
        notes[f"lost_ms_{phase}"] = round(lost_ms(worlds, phase), 3)
    return write_result("regions", measures, notes)


def troubled(seed: int, rate_per_s: float = RATE_PER_S) -> World:
    """A world that has had every trouble but a crowd."""
    world = World(seed, rate_per_s)
    world.spend("calm", REST_S)
    world.slowness[NEAREST] = SLOW
    world.spend("slow", TROUBLE_S)
    world.slowness[NEAREST] = 1.0
    world.spend("after_slow", REST_S)
    world.rtt_s[NEAREST] = FAR_S
    world.spend("far", TROUBLE_S)
    world.rtt_s[NEAREST] = RTT_S[NEAREST]
    world.spend("after_far", REST_S)
    world.kill(NEAREST)
    world.spend("gone", TROUBLE_S)
    world.revive(NEAREST)
    world.spend("after_gone", REST_S)
    return world


def crowded(seed: int, crowd_per_s: float = CROWD_PER_S) -> World:
    """A world whose nearest region was offered more than it can do."""
    world = World(seed, RATE_PER_S)
    world.spend("calm", TROUBLE_S)
    world.rate_per_s = crowd_per_s
    world.spend("crowd", TROUBLE_S)
    world.rate_per_s = RATE_PER_S
    world.spend("after_crowd", TROUBLE_S)
    return world


def share(worlds: Sequence[World], *phases: str) -> float:
    """Of all requests, those that went where they would be answered first."""
    chosen = phases or tuple(worlds[0].sent)
    right = sum(world.right[phase] for world in worlds for phase in chosen)
    return right / sum(world.sent[phase] for world in worlds for phase in chosen)


def lost_ms(worlds: Sequence[World], phase: str) -> float:
    """Mean time that a request's answer came later than it could have."""
    return statistics.fmean(ms for world in worlds for ms in world.lost_ms[phase])


def decision_us(world: World) -> float:
    """Processor time of one decision, the median of rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(DECISIONS):
            features = Features(pair=PAIR, chars=60, tenant="t", country="FR")
            decision = forward(features, world.fleet, world.now)
            world.fleet.took(features, decision.region, home=decision.home, probe=decision.why == "probe")
        rounds.append((time.process_time() - begin) / DECISIONS)
    return statistics.median(rounds) * 1e6


class Edge:
    """A queue with one server, and the endpoint that stands for it in the fleet."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.free_at = 0.0
        self.round_trip = RoundTrip()


class World:
    """Simulated regions behind one fleet. What is counted is counted by phase."""

    def __init__(self, seed: int, rate_per_s: float) -> None:
        self.now = 0.0
        self.rate_per_s = rate_per_s
        self.rtt_s = dict(RTT_S)
        self.slowness = dict.fromkeys(RTT_S, 1.0)
        self.up = dict.fromkeys(RTT_S, True)
        self.sent: Counter[str] = Counter()
        self.right: Counter[str] = Counter()  # went to the region that was truly fastest
        self.lost_ms: dict[str, list[float]] = {}  # by which each answer came later than it could have
        self.went: Counter[tuple[str, str]] = Counter()  # to which region
        self.turns: list[str] = []
        self.homes: list[str] = []
        self.failed = 0
        self._phase = ""
        self._random = Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        regions = {name: Region(edges=tuple(f"ws://{name}-{n}/" for n in range(EDGES))) for name in RTT_S}
        config = RoutingConfig(regions=regions)
        self.fleet = Fleet(config, "bench")
        self.edges = {
            name: [Edge(Endpoint(url, Pool(AttemptLimits(), 0.0), 0.0)) for url in region.edges]
            for name, region in regions.items()
        }
        self.fleet.apply(config, "bench", [edge.endpoint for edges in self.edges.values() for edge in edges])
        self._ping()
        self._run(PING_S)
        self._at(self.now, self._arrive)

    @property
    def flaps(self) -> int:
        """Changes of mind that no trouble explains: there and back for each of slow and far, left and back once."""
        return max(0, len(self.homes) - 5) + max(0, len(self.turns) - 2)

    def spend(self, phase: str, seconds: float) -> None:
        """Go on for so long."""
        self._phase = phase
        self._run(self.now + seconds)

    def kill(self, name: str) -> None:
        """The region is gone."""
        self.up[name] = False
        self._look(name)

    def revive(self, name: str) -> None:
        """It is back; the links to it follow."""
        self.up[name] = True
        for edge in self.edges[name]:
            edge.free_at = self.now
        self._at(self.now + RECONNECT_S, lambda: self._look(name))

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, event))

    def _run(self, until: float) -> None:
        while self._events[0][0] < until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def _ping(self) -> None:
        for name in self.edges:
            for edge in self.edges[name]:
                edge.round_trip.asked(self._number, self.now)
                rtt_s = self.rtt_s[name] * self._random.uniform(1.0, 1.1)
                self._at(self.now + rtt_s, partial(self._pong, name, edge, self._number))
        self._at(self.now + PING_S, self._ping)

    def _pong(self, name: str, edge: Edge, number: int) -> None:
        edge.round_trip.answered(number, self.now)
        self._look(name)

    def _look(self, name: str) -> None:
        """What the links to a region say now."""
        for edge in self.edges[name]:
            edge.endpoint.update(
                up=self.up[name],
                hello=Hello("edge", models=(MODEL,)),
                load=LoadReport("ready"),
                rtt_s=edge.round_trip.rtt_s,
            )
            self._turned(name, self.fleet.see(edge.endpoint, self.now))

    def _arrive(self) -> None:
        self._at(self.now + self._random.expovariate(self.rate_per_s), self._arrive)
        chars = int(min(400.0, self._random.lognormvariate(3.8, 0.6)))
        self._send(Features(pair=PAIR, chars=chars), attempts_left=2)

    def _send(self, features: Features, attempts_left: int) -> None:
        decision = forward(features, self.fleet, self.now)
        if not decision.region:
            self.failed += 1
            return
        name = decision.region
        if not self.homes or self.homes[-1] != decision.home:
            self.homes.append(decision.home)
        run_s = RUN_S * (features.chars + 32) / 80 * self._random.lognormvariate(0.0, 0.2)
        self._judge(name, run_s)
        depth = self.fleet.regions[name].in_flight
        self.fleet.took(features, name, home=decision.home, probe=decision.why == "probe")
        edge = self._edge(name)
        edge.endpoint.in_flight += 1
        rtt_s = self.rtt_s[name]
        wait_s = max(0.0, edge.free_at - self.now - rtt_s / 2)
        run_s *= self.slowness[name]
        edge.free_at = self.now + rtt_s / 2 + wait_s + run_s

        def end() -> None:
            edge.endpoint.in_flight -= 1
            lost = not self.up[name]
            self._turned(name, self.fleet.ended(edge.endpoint, "failed" if lost else "ok", self.now))
            if not lost:
                stages_ms = {"edge_queue": wait_s * 1e3, "edge_run": run_s * 1e3}
                accounted_ms = (wait_s + run_s) * 1e3
                self.fleet.answered(
                    name, features, accounted_ms=accounted_ms, stages_ms=stages_ms, depth=depth, now=self.now
                )
            elif attempts_left:
                self._send(features, attempts_left - 1)
            else:
                self.failed += 1

        self._at(self.now + rtt_s + wait_s + run_s, end)

    def _edge(self, name: str) -> Edge:
        """Of two edges the one with less in flight."""
        one, other = self._random.sample(self.edges[name], 2)
        return one if one.endpoint.in_flight <= other.endpoint.in_flight else other

    def _judge(self, chosen: str, run_s: float) -> None:
        """Beside the truth: when each region's best edge would have answered."""
        truth = {name: self._truth_s(name, run_s) for name in RTT_S if self.up[name]}
        best = min(truth, key=truth.__getitem__)
        self.sent[self._phase] += 1
        self.right[self._phase] += chosen == best
        self.went[self._phase, chosen] += 1
        lost_s = truth.get(chosen, GONE_S) - truth[best]
        self.lost_ms.setdefault(self._phase, []).append(lost_s * 1e3)

    def _truth_s(self, name: str, run_s: float) -> float:
        rtt_s = self.rtt_s[name]
        waits_s = (max(0.0, edge.free_at - self.now - rtt_s / 2) for edge in self.edges[name])
        return rtt_s + min(waits_s) + run_s * self.slowness[name]

    def _turned(self, name: str, turn: str | None) -> None:
        if turn is not None:
            self.turns.append(f"{name} {turn}")
