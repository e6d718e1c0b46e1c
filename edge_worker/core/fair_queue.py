"""Whose turn it is: a queue in which requests share one server by the work they bring, not by when they came.

Decides: the order of the items. Must not know: what an item is, batches, clocks.
Start-time fair queueing (Goyal, Vin, Cheng 1996): an item starts, in virtual time, where its request's item before it
finishes, but not in the past; items are served by their start. So a request of a thousand segments takes the whole
server while it is alone, and a newcomer's first segment goes before all that has not started yet.
Invariants: items of one request keep their order, and so do requests of one item each; `tokens` is the sum over the
items waiting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from itertools import count
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Share:
    """What a queue remembers of one request: the virtual instant at which its last item finishes."""

    __slots__ = ("finish",)

    def __init__(self) -> None:
        self.finish = 0.0


class FairQueue(Generic[T]):
    """Iterates over the items waiting, next one first. Adding and removing cost O(log n) and a shift, `tokens_before`
    O(log n) and a sum."""

    def __init__(self) -> None:
        self.tokens = 0
        self._now = 0.0  # virtual time: the start of the item served last
        self._order: list[tuple[float, int]] = []  # start, number
        self._items: list[T] = []  # in the same order
        self._tokens: list[int] = []  # likewise
        self._places: dict[T, tuple[float, int]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """Items waiting."""
        return len(self._order)

    def __iter__(self) -> Iterator[T]:
        """Items waiting, next one first."""
        return iter(self._items)

    def add(self, item: T, tokens: int, share: Share) -> None:
        """Queue an item of the request that `share` stands for."""
        place = start, _ = self._start(share), next(self._numbers)
        share.finish = start + tokens
        at = bisect_right(self._order, place)
        self._order.insert(at, place)
        self._items.insert(at, item)
        self._tokens.insert(at, tokens)
        self._places[item] = place
        self.tokens += tokens

    def serve(self, item: T) -> None:
        """Take out an item that is served now: virtual time goes on to its start."""
        self._now = max(self._now, self._places[item][0])
        self.remove(item)

    def remove(self, item: T) -> bool:
        """Take out an item; False when it isn't waiting."""
        place = self._places.pop(item, None)
        if place is None:
            return False
        at = bisect_left(self._order, place)
        del self._order[at], self._items[at]
        self.tokens -= self._tokens.pop(at)
        return True

    def tokens_before(self, share: Share) -> int:
        """Tokens of the items that would be served before an item of this request added now."""
        return sum(self._tokens[: bisect_right(self._order, (self._start(share), inf))])

    def _start(self, share: Share) -> float:
        return max(self._now, share.finish)
