"""Peak EWMA: a cost estimate that believes bad news at once and good news slowly.

Decides: what one request more at an endpoint is expected to cost.
Must not know: endpoints, requests, clocks (`now` is an argument, monotonic seconds).
Invariants: the cost is never negative; an observation above it becomes it; silence only lowers it, so that an endpoint
which once looked bad is tried again.
After Finagle's PeakEwma load metric (Twitter, 2015); the average is Roberts, "Control Chart Tests Based on Geometric
Moving Averages", Technometrics 1(3), 1959, with weights by elapsed time instead of by sample.
"""

from __future__ import annotations

from math import exp

# Load of an endpoint that was never measured but already has work: one probe at a time, then its own figures.
UNMEASURED_LOAD = 1e6


class PeakEwma:
    """Cost of one endpoint in any unit (seconds here), forgotten with time constant `tau_s`."""

    __slots__ = ("_cost", "_observed_at", "_tau_s")

    def __init__(self, tau_s: float, now: float) -> None:
        assert tau_s > 0
        self._tau_s = tau_s
        self._cost = 0.0
        self._observed_at = now

    def observe(self, cost: float, now: float) -> None:
        """Take in the cost of one finished request."""
        assert cost >= 0
        if cost >= self._cost:
            self._cost = cost
        else:
            weight = self._weight(now)
            self._cost = self._cost * weight + cost * (1.0 - weight)
        self._observed_at = max(now, self._observed_at)

    def cost(self, now: float) -> float:
        """Present estimate; decays towards zero while nothing is observed."""
        return self._cost * self._weight(now)

    def load(self, in_flight: int, now: float) -> float:
        """Expected cost of one request more behind `in_flight` others: what a picker compares."""
        cost = self.cost(now)
        if cost == 0.0 and in_flight:
            return UNMEASURED_LOAD + in_flight
        return cost * (in_flight + 1)

    def _weight(self, now: float) -> float:
        return exp(-max(0.0, now - self._observed_at) / self._tau_s)
