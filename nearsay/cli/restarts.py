"""Whether, and after which wait, a service that died is started again. Pure: instants are arguments."""

from __future__ import annotations

RESTARTS_MAX = 8  # in a row; one that stayed up for STABLE_S starts a new row
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 15.0
STABLE_S = 60.0


class Restarts:
    """Of one service. `count` is how often it was started again, ever."""

    def __init__(self) -> None:
        self.count = 0
        self._in_a_row = 0
        self._up_since: float | None = None

    def up(self, now: float) -> None:
        """It is ready."""
        self._up_since = now

    def died(self, now: float) -> float | None:
        """Seconds to wait before the next start, None to give up."""
        if self._up_since is not None and now - self._up_since >= STABLE_S:
            self._in_a_row = 0
        self._up_since = None
        if self._in_a_row == RESTARTS_MAX:
            return None
        self._in_a_row += 1
        self.count += 1
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (self._in_a_row - 1))
