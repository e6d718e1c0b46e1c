"""Round-trip time of a link, from its own hello and pings.

Decides: which answers are samples, and what they say together.
Must not know: frames, queues, clocks (`now` is an argument, monotonic seconds).
Invariants: an answer that was not asked for is no sample, so that a peer can't make itself look near; SAMPLES numbers
are kept. The median, not the mean: one turn of a busy event loop must not look like distance, a new path must.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 3


class RoundTrip:
    """Single writer of one link's estimate."""

    __slots__ = ("_asked", "_samples", "rtt_s")

    def __init__(self) -> None:
        self.rtt_s: float | None = None  # None before the first answer
        self._asked: tuple[int, float] | None = None
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    def asked(self, number: int, now: float) -> None:
        """A question left. While one is unanswered the next ones aren't timed: a slow peer is timed all the same."""
        if self._asked is None:
            self._asked = number, now

    def answered(self, number: int, now: float) -> bool:
        """An answer came; whether it is a new sample."""
        if self._asked is None or self._asked[0] != number:
            return False
        self._samples.append(max(0.0, now - self._asked[1]))
        self._asked = None
        self.rtt_s = sorted(self._samples)[(len(self._samples) - 1) // 2]
        return True
