"""The queue of requests that wait for room at a peer: fair between tenants, interactive before batch, shed by age.

Decides: who is served when there is room, who is refused because the queue is full or stands, and in which order.
Must not know: what an item is, peers, clocks (`now` is an argument, monotonic seconds).
Invariants: at most `waiting_max` items; each leaves once: served, shed, given up or discarded; over time, tenants that
always wait are served the same cost, to within one quantum and one request; a full queue gives up the newest item of
whoever has the most in it, so that a flood can't keep others out; items of one tenant and class keep their order, but
for those that no peer with room can take.
Deficit round robin: Shreedhar and Varghese, 1996. A queue of its own, with its own CoDel, for each flow: RFC 8290.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

import msgspec

from nearsay.traffic.codel import CoDel
from nearsay.traffic.mode import Mode

T = TypeVar("T", bound=Hashable)


class QueueRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Costs are characters. `shed` is about age alone: a full queue refuses in every mode."""

    shed: Mode = "dark"
    waiting_max: int = 1024
    quantum: int = 256  # cost that a tenant may use before the next one's turn
    cost_min: int = 64  # of a request, however short
    cost_max: int = 16_384  # and however long: bounds the turns that a look at the queue takes
    target_ms: float = 500.0  # CoDel's, of interactive requests
    batch_target_ms: float = 20_000.0
    interval_ms: float = 1_000.0

    def __post_init__(self) -> None:
        assert self.waiting_max > 0 and self.quantum > 0 and 0 < self.cost_min <= self.cost_max
        assert min(self.target_ms, self.batch_target_ms, self.interval_ms) > 0


class Left(msgspec.Struct, Generic[T]):
    """Who left the queue: one to be served, if any, and those refused for their age."""

    served: T | None
    shed: list[T]
    shed_dark: bool = False  # the one served would have been refused


class _Waiting(msgspec.Struct, Generic[T], frozen=True, eq=False):
    item: T
    kind: Hashable
    cost: int
    since: float
    number: int


class _Flow(Generic[T]):
    """One tenant's items of one class, apart by kind: where no peer takes one kind, another may still be served."""

    __slots__ = ("by_kind", "codel", "count", "credit")

    def __init__(self, credit: int, codel: CoDel) -> None:
        self.credit = credit
        self.codel = codel
        self.count = 0
        self.by_kind: dict[Hashable, deque[_Waiting[T]]] = {}

    def add(self, waiting: _Waiting[T]) -> None:
        self.by_kind.setdefault(waiting.kind, deque()).append(waiting)
        self.count += 1

    def remove(self, waiting: _Waiting[T]) -> None:
        alike = self.by_kind[waiting.kind]
        alike.remove(waiting)
        self.count -= 1
        if not alike:
            del self.by_kind[waiting.kind]

    def first(self, able: Callable[[T], bool]) -> _Waiting[T] | None:
        heads = [alike[0] for alike in self.by_kind.values() if able(alike[0].item)]
        return min(heads, key=_number) if heads else None

    def newest(self) -> _Waiting[T]:
        return max((alike[-1] for alike in self.by_kind.values()), key=_number)


def _number(waiting: _Waiting[T]) -> int:
    return waiting.number


Key = tuple[bool, str]  # interactive, tenant


class WaitQueue(Generic[T]):
    """All that wait. Items are compared as they hash, and none may be in it twice."""

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._flows: dict[Key, _Flow[T]] = {}
        self._rings: dict[bool, list[Key]] = {True: [], False: []}  # whose turn it is, by class
        self._places: dict[T, tuple[Key, _Waiting[T]]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        """Everything that waits, oldest first."""
        return iter(self._places)

    def add(self, item: T, *, tenant: str, interactive: bool, cost: int, kind: Hashable = None, now: float) -> T | None:
        """Queue an item; the one given up for it when the queue is full, which may be itself.

        Items of one `kind` are alike to peers: what can take one of them can take any.
        """
        assert item not in self._places
        key = interactive, tenant
        given_up = None
        if len(self) >= self._rules.waiting_max:
            flow = self._flows.get(key)
            given_up = self.give_up(tenant, waiting=flow.count if flow else 0)
            if given_up is None:
                return item
        if key not in self._flows:
            self._flows[key] = _Flow(self._rules.quantum, self._codel(interactive))
            self._rings[interactive].append(key)
        cost = min(max(cost, self._rules.cost_min), self._rules.cost_max)
        waiting = _Waiting(item, kind, cost, now, next(self._numbers))
        self._flows[key].add(waiting)
        self._places[item] = key, waiting
        return given_up

    def give_up(self, tenant: str, *, waiting: int = 0) -> T | None:
        """Take out the newest item of the longest flow, for a tenant that has so many `waiting` and wants one more.

        None when that flow is the tenant's own, or would then be the shorter one.
        """
        key = max(self._flows, key=lambda key: self._flows[key].count, default=None)
        if key is None or key[1] == tenant or self._flows[key].count <= waiting + 1:
            return None
        item = self._flows[key].newest().item
        self.discard(item)
        return item

    def discard(self, item: T) -> bool:
        """Forget an item; False when it isn't there any more."""
        place = self._places.pop(item, None)
        if place is None:
            return False
        key, waiting = place
        self._flows[key].remove(waiting)
        if not self._flows[key].count:  # credit isn't saved up while nobody waits
            del self._flows[key]
            self._rings[key[0]].remove(key)
        return True

    def take(self, able: Callable[[T], bool], now: float) -> Left[T]:
        """The next item that is `able` to be served now, without those found too old on the way to it."""
        left: Left[T] = Left(None, [])
        for interactive in (True, False):
            while (found := self._next(interactive, able)) is not None:
                flow, waiting = found
                old = self._rules.shed != "off" and flow.codel.shed(now - waiting.since, now)
                self.discard(waiting.item)
                if old and self._rules.shed == "on":
                    left.shed.append(waiting.item)
                    continue
                flow.credit -= waiting.cost
                left.served, left.shed_dark = waiting.item, old
                return left
        return left

    def _next(self, interactive: bool, able: Callable[[T], bool]) -> tuple[_Flow[T], _Waiting[T]] | None:
        """Whose turn it is in a class. A flow of which no peer can take anything keeps its place."""
        ring, at = self._rings[interactive], 0
        while at < len(ring):
            flow = self._flows[ring[at]]
            waiting = flow.first(able)
            if waiting is None:
                at += 1
            elif waiting.cost <= flow.credit:
                return flow, waiting
            else:
                flow.credit += self._rules.quantum
                ring.append(ring.pop(at))
        return None

    def _codel(self, interactive: bool) -> CoDel:
        target_ms = self._rules.target_ms if interactive else self._rules.batch_target_ms
        return CoDel(target_s=target_ms / 1000.0, interval_s=self._rules.interval_ms / 1000.0)
