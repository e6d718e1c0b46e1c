"""Hedging: when a request that is late is asked for a second time, elsewhere.

Decides: how late is late, and whether one hedge more is affordable.
Must not know: requests, peers, whether one may be hedged at all, clocks (`now` is an argument, monotonic seconds).
Invariants: over any BUDGET_S hedges are at most extra_load_max * requests + floor_per_s * BUDGET_S (budget.py); nothing
is hedged while the pool's latencies are unknown.
Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013: a second request after the 95th percentile costs 5 % of load
and takes most of the tail. The budget is what keeps that true when the whole pool becomes slow at once.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.latencies import Latencies
from nearsay.traffic.mode import Mode

BUDGET_S = 10.0


class HedgeRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`quantile`: of the pool's own latency for such requests; a request that takes longer is late."""

    mode: Mode = "on"
    quantile: float = 0.975
    extra_load_max: float = 0.03  # hedges paid for by each request
    floor_per_s: float = 0.2  # and by each second
    delay_ms_min: float = 2.0  # below this, timers and links are what is measured

    def __post_init__(self) -> None:
        assert 0 < self.quantile < 1 and self.extra_load_max >= 0 and self.floor_per_s >= 0


class Hedging:
    """Delay and budget of one pool's hedges."""

    def __init__(self, rules: HedgeRules, latencies: Latencies, now: float) -> None:
        self.rules = rules
        self._latencies = latencies
        self._budget = RetryBudget(ratio=rules.extra_load_max, floor_per_s=rules.floor_per_s, ttl_s=BUDGET_S, now=now)

    def delay_s(self, key: Hashable, now: float) -> float | None:
        """How long to wait for the first attempt of such a request, None when it isn't to be hedged. Counts it."""
        self._budget.deposit(now)
        if self.rules.mode == "off":
            return None
        usual_s = self._latencies.quantile(key, self.rules.quantile, now)
        return None if usual_s is None else max(usual_s, self.rules.delay_ms_min / 1000.0)

    def pay(self, now: float) -> bool:
        """Whether a hedge may be made now; if so, it has been paid for."""
        return self._budget.withdraw(now)
