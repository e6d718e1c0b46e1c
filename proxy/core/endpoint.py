"""One edge worker as the proxy sees it.

Decides: whether this edge can take a request, and what one more would cost there.
Must not know: links, sockets, other edges (but through their pool), clocks (`now` is an argument, monotonic seconds).
Invariants: `in_flight` is never negative; each attempt holds a permit that ends once; ignored feeds no estimate.
Requests that ask for the origin spend their time there, so they have an estimate and a limit of their own; a long text
must not make its edge look slow, so costs are per WORK_CHARS characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from nearsay.traffic.concurrency import GradientLimit, Users
from nearsay.traffic.ejection import Event
from nearsay.traffic.ewma import PeakEwma
from nearsay.traffic.rendezvous import key_of
from nearsay.wire.messages import Hello, LoadReport, ModelInfo, State, Tier
from proxy.core.pool import Pool, User, Work

Outcome = Literal["ok", "failed", "refused", "late", "ignored"]
"""ok: answered. failed: its fault. refused: no room there. late: given up before its answer. ignored: says nothing."""
WORK_CHARS = 128
LIMIT_CHARS_MAX = 1024  # longer texts queue behind themselves: they say nothing about the edge's queue


def pair_name(source: str, target: str) -> str:
    """`en-de`, as it stands in `Hello.origin_pairs`."""
    return f"{source}-{target}"


class _Lane:
    """What is known of the requests of one kind, those for the edge's own models or those for an origin."""

    __slots__ = ("cost", "limit", "users")

    def __init__(self, pool: Pool, now: float) -> None:
        self.cost = PeakEwma(pool.limits.latency_tau_s, now)
        self.limit = GradientLimit(pool.limits.concurrency, now)
        self.users = Users(pool.limits.concurrency)


class Endpoint:
    """State of one edge: what it serves, whether it is up, how it has done."""

    def __init__(self, name: str, pool: Pool, now: float, region: str = "") -> None:
        self.name = name
        self.region = region
        self.node = key_of(name)  # its identity in rendezvous hashing
        self.rtt_s: float | None = None  # of its link; kept while it is away
        self.up = False
        self.in_flight = 0
        self.state: State = "starting"
        self.models: tuple[ModelInfo, ...] = ()
        self.edge_pairs: frozenset[str] = frozenset()
        self.origin_pairs: frozenset[str] = frozenset()
        self.origin_ready: frozenset[str] = frozenset()
        self.pool = pool
        self._instance = ""
        self._edge = _Lane(pool, now)
        self._origin = _Lane(pool, now)
        self._member = pool.ejector.join(now)

    def update(self, *, up: bool, hello: Hello | None, load: LoadReport | None, rtt_s: float | None = None) -> None:
        """Take in what the link says now.

        What the edge serves is kept while it is away, and what it could ever get from an origin until it restarts: an
        origin that is down makes a 503, not a pair that nobody knows.
        """
        self.up = up
        if not up or hello is None:
            return
        self.rtt_s = rtt_s if rtt_s is not None else self.rtt_s
        if hello.instance != self._instance:
            self._instance, self.origin_pairs = hello.instance, frozenset()
        self.models = (load.models if load is not None else ()) or hello.models  # a report has all of them, or none
        self.state = load.state if load is not None else hello.state
        self.origin_ready = frozenset(load.origin_ready) if load is not None else frozenset()
        self.edge_pairs = frozenset(pair_name(m.source, m.target) for m in self.models if m.tier == "edge")
        from_origin = (pair_name(m.source, m.target) for m in self.models if m.tier == "origin")
        self.origin_pairs = self.origin_pairs.union(hello.origin_pairs, self.origin_ready, from_origin)

    @property
    def served(self) -> tuple[object, ...]:
        """What the catalogue depends on; equal values mean that it needn't be made anew."""
        return self.models, self.edge_pairs, self.origin_pairs

    @property
    def available(self) -> bool:
        """Whether a new request may be sent here at all."""
        return self.up and self.state == "ready"

    @property
    def ejected(self) -> bool:
        """Whether the pool does without it for now."""
        return self.pool.ejector.is_out(self._member)

    def leave(self) -> None:
        """It is no longer of its pool."""
        self.pool.ejector.leave(self._member)

    def due(self, now: float) -> bool:
        """Whether one request may be sent here to see whether it is well again."""
        return self.pool.ejector.due(self._member, now)

    def serves(self, pair: str, tier: Tier) -> bool:
        """Whether this edge has, or can get, what `tier` asks for."""
        if tier == "edge":
            return pair in self.edge_pairs
        if tier == "auto":
            return pair in self.edge_pairs or pair in self.origin_pairs
        return pair in self.origin_pairs

    def has_models(self, names: Iterable[str]) -> bool:
        """Whether it has each of these `model@version`."""
        return all(any(model.name == name for model in self.models) for name in names)

    def has_room(self, tier: Tier, user: User, now: float) -> bool:
        """Whether its limit lets one request more of this user in."""
        lane = self._lane(tier)
        return self.pool.limits.concurrency.mode != "on" or lane.users.has_room(user, lane.limit.limit, now)

    def limit(self, tier: Tier) -> int:
        """Requests that it should have at once, whether or not that is enforced."""
        return self._lane(tier).limit.limit

    def load(self, tier: Tier, now: float) -> float:
        """Expected cost of one request more: what P2C compares."""
        return self._lane(tier).cost.load(self.in_flight, now)

    def begin(self, work: Work, tier: Tier, now: float) -> Permit:
        """An attempt goes here."""
        self.in_flight += 1
        self._lane(tier).users.enter(work.user, now)
        return Permit(self, work, tier, now, self.pool.ejector.begin(self._member, now))

    def _end(self, permit: Permit, outcome: Outcome, queued_s: float, now: float) -> Event:
        assert self.in_flight > 0
        lane, work, elapsed_s = self._lane(permit.tier), permit.work, max(0.0, now - permit.began)
        bad: bool | None = None
        if outcome == "ok":
            bad = self.pool.answered(work, elapsed_s, now)
            lane.cost.observe(elapsed_s / max(1.0, work.chars / WORK_CHARS), now)
            if not work.streamed and work.chars <= LIMIT_CHARS_MAX:
                lane.limit.observe(elapsed_s - queued_s, queued_s, lane.users.in_flight, now)
        elif outcome in ("failed", "refused"):  # failing fast must not look like being fast
            bad = True if outcome == "failed" else None
            lane.cost.observe(max(elapsed_s, self.pool.limits.failure_cost_s), now)
            if outcome == "refused":
                lane.limit.refused()
        elif outcome == "late":
            bad = self.pool.given_up(work, elapsed_s, now, heard=permit.heard)
            cost = elapsed_s / max(1.0, work.chars / WORK_CHARS)
            if cost > lane.cost.cost(now):  # it would have taken longer still: only bad news is news
                lane.cost.observe(cost, now)
        self.in_flight -= 1
        lane.users.leave(work.user)
        permit.bad = bool(bad)
        if permit.probe:
            return self.pool.ejector.end_probe(self._member, bad, now)
        return "" if bad is None else self.pool.ejector.observe(self._member, bad, now)

    def _lane(self, tier: Tier) -> _Lane:
        return self._origin if tier in ("origin", "refine") else self._edge


class Permit:
    """One attempt's place at an endpoint, from before it is sent until it has ended."""

    __slots__ = ("bad", "began", "ended", "endpoint", "heard", "probe", "tier", "work")

    def __init__(self, endpoint: Endpoint, work: Work, tier: Tier, now: float, probe: bool) -> None:
        self.endpoint = endpoint
        self.work = work
        self.tier = tier  # asked for here: the request's, or what stands in for it
        self.began = now
        self.probe = probe  # it finds out whether an ejected edge is well again
        self.heard = False  # set by the shell: something came back
        self.bad = False  # once it has ended: what that says about the edge
        self.ended = False

    def end(self, outcome: Outcome, now: float, queued_s: float = 0.0) -> Event:
        """It is over, once; `queued_s` of its time were spent in queues there. What that means for the edge."""
        assert not self.ended
        self.ended = True
        return self.endpoint._end(self, outcome, queued_s, now)
