"""Whether a translation has run into a loop: the same few ids over and over, as weak models do on odd sources.

Decides: when to stop waiting for an end that won't come. Must not know: what becomes of the sequence.
Invariant: a translation no longer than its source explains never counts as a loop, so that "ha ha ha ha ha" passes.
"""

from __future__ import annotations

from collections.abc import Sequence

PERIOD_MAX = 8
LOOPED_MIN = 24  # ids that must be nothing but repetition
TIMES_MIN = 3  # and hold the period so often
EXPLAINED_FACTOR, EXPLAINED_MORE = 2, 16  # a target of up to 2 * source + 16 ids is never judged


def loops(ids: Sequence[int], source_tokens: int) -> bool:
    """Whether the end of `ids` repeats a period of at most PERIOD_MAX ids, on and on. At most about 200 comparisons."""
    if len(ids) <= EXPLAINED_FACTOR * source_tokens + EXPLAINED_MORE:
        return False
    return any(_repeats(ids, period) for period in range(1, PERIOD_MAX + 1))


def _repeats(ids: Sequence[int], period: int) -> bool:
    looped = max(LOOPED_MIN, TIMES_MIN * period)
    if len(ids) < looped:
        return False
    tail = ids[-looped:]
    return tail[period:] == tail[:-period]
