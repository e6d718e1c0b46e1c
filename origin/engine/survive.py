"""A broken pass takes as few sequences with it as it can.

Out of memory, a pass that may be repeated is cut in halves, down to single sequences, and later ones stay as small
until many have gone well: only a sequence that doesn't fit alone is lost. Whatever else breaks takes all that were in
the pass, because nobody knows what state it left behind; the scheduler tries each of them again, alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch

from origin.core.plan import Fault

_log = logging.getLogger(__name__)

CPU_ALLOCATOR_SAYS = "can't allocate memory"
UNBOUNDED = 1 << 30
GROW_AFTER = 1000  # passes at the limit that went well, before twice as many are tried

T = TypeVar("T")
R = TypeVar("R")


class Part(NamedTuple, Generic[T, R]):
    """Some of the items, in their order. `result` of a run over them; None when nothing was done, by `fault`."""

    items: list[T]
    result: R | None
    fault: Fault = ""


class Survivor:
    """Of one model. `limit`: sequences of a pass, as few as memory allowed of late. `cut`: passes that were cut."""

    def __init__(self) -> None:
        self.limit = UNBOUNDED
        self.cut = 0
        self._well = 0

    def run(self, items: Sequence[T], run: Callable[[list[T]], R], *, repeatable: bool) -> list[Part[T, R]]:
        """Run over all items, in as many parts as it takes. An empty list is not run."""
        parts: list[Part[T, R]] = []
        left = list(items)
        while left:
            part = self.attempt(left[: self.limit], run)
            if part.fault == "memory" and len(part.items) > 1 and repeatable:
                continue  # with fewer
            parts.append(part)
            left = left[len(part.items) :]
        return parts

    def attempt(self, items: list[T], run: Callable[[list[T]], R]) -> Part[T, R]:
        """Run once over all items together."""
        try:
            result = run(items)
        except Exception as error:
            _log.exception("a pass over %d sequences broke", len(items))
            if not out_of_memory(error):
                return Part(items, None, "engine")
            self._shrink(len(items))
            return Part(items, None, "memory")
        self._went_well(len(items))
        return Part(items, result)

    def _shrink(self, size: int) -> None:
        self.limit = max(1, size // 2)
        self.cut += 1
        self._well = 0
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _went_well(self, size: int) -> None:
        if size < self.limit:
            return
        self._well += 1
        if self._well >= GROW_AFTER:
            self._well = 0
            self.limit = min(2 * self.limit, UNBOUNDED)


def out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python ran out of memory, on any device."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_ALLOCATOR_SAYS in str(error)
