"""How often, and after which wait, a request whose transport was lost is sent again.

Attempts are paid from `nearsay.traffic.budget.RetryBudget`, one per client, so that retries stay a small share of its
load however badly the network does. Only lost transport is retried here: answers are the proxy's to retry.
"""

from __future__ import annotations

from nearsay.traffic.budget import RetryBudget

ATTEMPTS_MAX = 3  # of one request, the first included
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0


def default_budget(now: float) -> RetryBudget:
    """One retry in ten requests, and one every two seconds for a client with little to do."""
    return RetryBudget(ratio=0.1, floor_per_s=0.5, ttl_s=10.0, now=now)


def backoff_s(attempt: int, chance: float) -> float:
    """Wait before attempt `attempt` (2 = the first retry): exponential, full jitter from `chance` in [0, 1)."""
    assert attempt >= 2 and 0 <= chance < 1
    return chance * min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (attempt - 2))
