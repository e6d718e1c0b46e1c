"""One edge worker as the proxy sees it.

Decides: whether this edge can take a request, and what one more would cost there.
Must not know: links, sockets, other edges, clocks (`now` is an argument, monotonic seconds).
Invariants: `in_flight` is never negative; each attempt ends once, as ok, failed or ignored; ignored feeds no estimate.
Requests that ask for the origin spend their time there, so they have an estimate of their own; a long text must not
make its edge look slow, so costs are per WORK_CHARS characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nearsay.traffic.ewma import PeakEwma
from nearsay.traffic.rendezvous import key_of
from nearsay.wire.messages import Hello, LoadReport, ModelInfo, State, Tier

Outcome = Literal["ok", "failed", "ignored"]
WORK_CHARS = 128


def pair_name(source: str, target: str) -> str:
    """`en-de`, as it stands in `Hello.origin_pairs`."""
    return f"{source}-{target}"


class Endpoint:
    """State of one edge: what it serves, whether it is up, how it has done."""

    def __init__(self, name: str, *, tau_s: float, failure_cost_s: float, now: float, region: str = "") -> None:
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
        self._instance = ""
        self._failure_cost_s = failure_cost_s
        self._edge_cost = PeakEwma(tau_s, now)
        self._origin_cost = PeakEwma(tau_s, now)

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
        self.models = _newest(hello.models, load.models if load is not None else ())
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

    def serves(self, pair: str, tier: Tier) -> bool:
        """Whether this edge has, or can get, what `tier` asks for."""
        if tier == "edge":
            return pair in self.edge_pairs
        if tier == "auto":
            return pair in self.edge_pairs or pair in self.origin_pairs
        return pair in self.origin_pairs

    def load(self, tier: Tier, now: float) -> float:
        """Expected cost of one request more: what P2C compares."""
        return self._cost(tier).load(self.in_flight, now)

    def started(self) -> None:
        """An attempt goes here."""
        self.in_flight += 1

    def ended(self, outcome: Outcome, *, tier: Tier, chars: int, elapsed_s: float, now: float) -> None:
        """It is over. A failure costs at least `failure_cost_s`: failing fast must not look like being fast."""
        assert self.in_flight > 0
        self.in_flight -= 1
        if outcome == "ok":
            self._cost(tier).observe(elapsed_s / max(1.0, chars / WORK_CHARS), now)
        elif outcome == "failed":
            self._cost(tier).observe(max(elapsed_s, self._failure_cost_s), now)

    def _cost(self, tier: Tier) -> PeakEwma:
        return self._origin_cost if tier in ("origin", "refine") else self._edge_cost


def _newest(greeted: Sequence[ModelInfo], reported: Sequence[ModelInfo]) -> tuple[ModelInfo, ...]:
    """Models of the hello, replaced or extended by what a later load report says."""
    return tuple({model.name: model for model in (*greeted, *reported)}.values())
