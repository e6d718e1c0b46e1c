"""Micro-batches across requests: what one engine runs next.

Decides: which waiting rows form the next batch, which are refused for room and which expire.
Must not know: engines, futures, clocks (`now` is an argument, monotonic seconds), what a row stands for.
Invariants: rows waiting never pass `rows_waiting_max`; interactive rows run before batch rows, which only fill what
those leave of `run_ms_max`, and never lengthen their batch; inside a class requests share the engine by tokens
(fair_queue.py); a row that can't finish in time is never run; every row added leaves once: taken, expired, discarded
or cleared.
"""

from __future__ import annotations

from math import inf
from typing import Generic, TypeVar

import msgspec

from edge_worker.core.fair_queue import FairQueue, Share
from edge_worker.core.run_cost import RunCost
from nearsay.wire.errors import Overloaded

T = TypeVar("T")
SMOOTHING = 0.1  # share of the newest batch in the drain rate


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one engine's queue and of its batches. Run times are expected ones."""

    rows_max: int = 32
    rows_waiting_max: int = 1024
    run_ms_max: float = 25.0  # while interactive rows wait
    backlog_share: float = 1.0  # or this share of the time that the waiting interactive rows need, when that is more
    bulk_run_ms_max: float = 150.0  # but never more than this, whatever waits
    calm_s: float = 1.0  # batch rows alone keep to run_ms_max too, for this long after interactive ones ran


class Row(Generic[T]):
    """One segment in the queue. `tokens` are source tokens with the end of sentence, `deadline` monotonic seconds.

    Rows of one request have its `share` in common.
    """

    __slots__ = ("deadline", "interactive", "item", "share", "tokens")

    def __init__(self, item: T, *, tokens: int, interactive: bool, deadline: float, share: Share | None = None) -> None:
        assert tokens >= 1
        self.item, self.tokens, self.interactive, self.deadline = item, tokens, interactive, deadline
        self.share = share or Share()


class Batcher(Generic[T]):
    """Two queues and a cost model. `take`, run the rows, `done`; one batch at a time."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self.cost = RunCost()
        self.running: list[Row[T]] = []
        self._interactive: FairQueue[Row[T]] = FairQueue()
        self._batch: FairQueue[Row[T]] = FairQueue()
        self._ends = 0.0  # expected end of the running batch
        self._interactive_ran = -inf
        self._ms_per_token = self.cost.run_ms(1, 1)

    def __len__(self) -> int:
        """Rows waiting."""
        return len(self._interactive) + len(self._batch)

    def add(self, row: Row[T]) -> None:
        """Queue a row. Raises Overloaded, with a time after which there should be room, when the queue is full."""
        if len(self) >= self.limits.rows_waiting_max:
            drain_ms = (self._interactive.tokens + self._batch.tokens) * self._ms_per_token
            raise Overloaded("the local model's queue is full", retry_after_ms=drain_ms)
        self._queue(row).add(row, row.tokens, row.share)

    def discard(self, row: Row[T]) -> bool:
        """Forget a row that nobody waits for any more; False when it isn't queued (running, or gone already)."""
        return self._queue(row).remove(row)

    def clear(self) -> list[Row[T]]:
        """Forget all rows that wait, and return them."""
        rows = [*self._interactive, *self._batch]
        for row in rows:
            self.discard(row)
        return rows

    def take(self, now: float) -> tuple[list[Row[T]], list[Row[T]]]:
        """The rows to run now (none when nothing waits), and those that had to be given up for their deadline."""
        assert not self.running, "one batch at a time"
        batch: list[Row[T]] = []
        expired: list[Row[T]] = []
        if self._interactive:
            self._interactive_ran = now
        cap_ms = self._cap_ms(now)
        longest = self._fill(batch, expired, self._interactive, now, cap_ms=cap_ms, longest=0)
        if batch:
            cap_ms = self.limits.run_ms_max
        longest = self._fill(batch, expired, self._batch, now, cap_ms=cap_ms, longest=longest)
        for row in expired:
            self.discard(row)
        for row in batch:
            self._queue(row).serve(row)
        self.running = batch
        self._ends = now + self.cost.run_ms(longest, sum(row.tokens for row in batch)) / 1000.0
        return batch, expired

    def done(self, run_ms: float | None) -> None:
        """The running batch ended after `run_ms`; None when it failed, which teaches nothing."""
        tokens = [row.tokens for row in self.running]
        self.running = []
        if tokens and run_ms is not None:
            self.cost.observe(tokens, run_ms)
            self._ms_per_token += SMOOTHING * (run_ms / sum(tokens) - self._ms_per_token)

    def wait_ms(self, now: float, *, interactive: bool, share: Share | None = None) -> float:
        """How long a row of this request (None: of a new one) added now would wait before it runs."""
        share = share or Share()
        ahead = self._interactive.tokens_before(share) if interactive else self._interactive.tokens
        ahead += 0 if interactive else self._batch.tokens_before(share)
        running_ms = max(0.0, self._ends - now) * 1000.0 if self.running else 0.0
        return running_ms + ahead * self._ms_per_token

    def _cap_ms(self, now: float) -> float:
        """Bound on the next batch's run time.

        Short batches keep the engine free for newcomers but cost throughput; in a backlog every newcomer waits for
        that throughput, so the bound grows (32 clients capped at 25 ms: half the throughput, twice the median wait).
        Batch rows never make it grow; alone, they run longer once no newcomer is to be expected.
        """
        if not self._interactive:
            calm = now - self._interactive_ran >= self.limits.calm_s
            return self.limits.bulk_run_ms_max if calm else self.limits.run_ms_max
        backlog_ms = self._interactive.tokens * self._ms_per_token
        return min(self.limits.bulk_run_ms_max, max(self.limits.run_ms_max, self.limits.backlog_share * backlog_ms))

    def _fill(
        self,
        batch: list[Row[T]],
        expired: list[Row[T]],
        queue: FairQueue[Row[T]],
        now: float,
        *,
        cap_ms: float,
        longest: int,
    ) -> int:
        """Put rows of `queue` into `batch`, in its order, while they fit; returns the longest row's tokens."""
        total = sum(row.tokens for row in batch)
        length_max = longest if batch else None
        for row in queue:
            if len(batch) == self.limits.rows_max:
                break
            if now + self.cost.run_ms(row.tokens, row.tokens) / 1000.0 > row.deadline:
                expired.append(row)
                continue
            run_ms = self.cost.run_ms(max(longest, row.tokens), total + row.tokens)
            if batch and (run_ms > cap_ms or (length_max is not None and row.tokens > length_max)):
                break
            batch.append(row)
            longest, total = max(longest, row.tokens), total + row.tokens
        return longest

    def _queue(self, row: Row[T]) -> FairQueue[Row[T]]:
        return self._interactive if row.interactive else self._batch
