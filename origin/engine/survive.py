"""A broken pass takes as few sequences with it as it can.

Out of memory, the newest sequence leaves and the others try again, if the pass may be repeated; whatever else breaks
takes all of them, because nobody knows what state it left behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch

_log = logging.getLogger(__name__)

CPU_ALLOCATOR_SAYS = "can't allocate memory"


class _OfSequence(Protocol):
    @property
    def sequence(self) -> int: ...


T = TypeVar("T", bound=_OfSequence)
R = TypeVar("R")


class Survived(NamedTuple, Generic[T, R]):
    """`result` of `run(done)`; None when nothing was done."""

    result: R | None
    done: list[T]
    lost: list[T]


def out_of_memory(error: Exception) -> bool:
    """Whether torch or Python ran out of memory, on any device."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_ALLOCATOR_SAYS in str(error)


def survive(items: Sequence[T], run: Callable[[list[T]], R], *, repeatable: bool) -> Survived[T, R]:
    """Run over as many items as can be done. An empty list is not run.

    A sequence's number rises with its arrival: the newest is the one that has invested least.
    """
    left, lost = list(items), list[T]()
    while left:
        try:
            return Survived(run(left), left, lost)
        except Exception as error:
            one = repeatable and out_of_memory(error)
            leaving = [max(left, key=lambda item: item.sequence)] if one else left
            _log.exception("a pass over %d sequences broke, %d of them fail", len(left), len(leaving))
            lost += leaving
            left = [item for item in left if item not in leaving]
    return Survived(None, [], lost)
