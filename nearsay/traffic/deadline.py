"""Deadlines: an absolute instant inside a process, the remaining milliseconds between processes.

Decides: how much time is left, and whether something still fits.
Must not know: what is waited for, clocks (`now` is an argument, monotonic seconds of this process).
Invariants: what remains is never negative and never grows; clocks of two machines are never compared.
Deadline propagation as in Beyer et al., "Site Reliability Engineering", 2016, chapter 22.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """The instant, in monotonic seconds, after which nobody wants the answer any more."""

    at: float

    @classmethod
    def after_ms(cls, budget_ms: float, now: float) -> Deadline:
        """Deadline `budget_ms` from `now`."""
        return cls(now + max(0.0, budget_ms) / 1000.0)

    def remaining_s(self, now: float) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at - now)

    def remaining_ms(self, now: float) -> float:
        """Milliseconds left: the `budget_ms` that goes on the wire."""
        return self.remaining_s(now) * 1000.0

    def expired(self, now: float) -> bool:
        """Whether it has passed."""
        return now >= self.at

    def leaves(self, needed_ms: float, now: float) -> bool:
        """Whether something that takes `needed_ms` still fits."""
        return self.at - now >= needed_ms / 1000.0
