"""How long a pool takes for one request: the run itself, and the waiting that those in flight cause.

Decides: what one request more is expected to take there, from what the last ones took.
Must not know: pools, requests, distance, clocks (`now` is an argument, monotonic seconds).
Invariants: estimates are never negative; the run time outlasts silence, the waiting doesn't: a pool that was full is
tried again, one that is slow is believed to be.
The waiting is a slope, seconds for each request in flight, so that a burst counts before its first answer is back: by
Little's law ("A Proof for the Queuing Formula L = lambda W", Operations Research 9(3), 1961) it is one over the
throughput once the pool is full, and zero as long as nobody waits.
"""

from __future__ import annotations

from math import exp

RUN_TAU_S = 3.0
WAIT_TAU_S = 0.5  # of the last answers: a crowd is there within a second
SILENCE_TAU_S = 3.0  # how fast the waiting is forgotten while nothing answers
SHARE_MAX = 0.5  # of one answer in an estimate: however rare answers are, one of them is not the truth


class ServiceTime:
    """Estimates of one pool and kind of request, in seconds."""

    __slots__ = ("depth", "observed_at", "run_s", "waited_s")

    def __init__(self) -> None:
        self.observed_at: float | None = None  # None = never
        self.run_s = 0.0  # for one unit of work
        self.waited_s = 0.0  # behind `depth - 1` others, when that was last observed
        self.depth = 1.0

    def observe(self, *, run_s: float, wait_s: float, depth: int, now: float) -> None:
        """One answer: it ran `run_s` for a unit of work, after `wait_s` behind `depth` requests in flight."""
        run_s, wait_s = max(0.0, run_s), max(0.0, wait_s)
        if self.observed_at is None:
            self.observed_at, self.run_s, self.waited_s, self.depth = now, run_s, wait_s, depth + 1.0
            return
        passed = max(0.0, now - self.observed_at)
        self.observed_at = max(now, self.observed_at)
        self.run_s += (run_s - self.run_s) * _share(passed, RUN_TAU_S)
        share = _share(passed, WAIT_TAU_S)
        self.waited_s += (wait_s - self.waited_s) * share
        self.depth += (depth + 1.0 - self.depth) * share

    def wait_s(self, depth: int, now: float) -> float:
        """Waiting expected behind `depth` requests in flight."""
        return self.slope_s(now) * (depth + 1)

    def slope_s(self, now: float) -> float:
        """Waiting that each request in flight adds."""
        if not self.waited_s or self.observed_at is None:
            return 0.0
        return self.waited_s / self.depth * exp(-max(0.0, now - self.observed_at) / SILENCE_TAU_S)


def _share(passed_s: float, tau_s: float) -> float:
    """Weight of a new answer, `passed_s` after the last one."""
    return min(SHARE_MAX, 1.0 - exp(-passed_s / tau_s))
