"""What becomes of a pass that breaks."""

from __future__ import annotations

import pytest
import torch

from origin.engine import survive
from origin.engine.survive import UNBOUNDED, Part, Survivor, out_of_memory


class Memory:
    """Passes over more than `room` items do not fit; those with a poisoned one break. `runs` are their sizes."""

    def __init__(self, room: int, poison: int = -1) -> None:
        self.room, self.poison = room, poison
        self.runs: list[int] = []

    def run(self, items: list[int]) -> list[int]:
        self.runs.append(len(items))
        if self.poison in items:
            raise ValueError("boom")
        if len(items) > self.room:
            raise MemoryError
        return [-item for item in items]


def done(parts: list[Part[int, list[int]]]) -> list[int]:
    return [result for part in parts for result in part.result or ()]


def test_a_pass_that_fits_is_run_once() -> None:
    memory, survivor = Memory(4), Survivor()
    (part,) = survivor.run([1, 2, 3], memory.run, repeatable=True)
    assert (part.result, part.fault, memory.runs) == ([-1, -2, -3], "", [3])
    assert survivor.run([], memory.run, repeatable=True) == []
    assert (survivor.limit, survivor.cut) == (UNBOUNDED, 0)


def test_a_pass_that_does_not_fit_is_cut_and_nobody_is_lost() -> None:
    memory, survivor = Memory(3), Survivor()
    parts = survivor.run(range(13), memory.run, repeatable=True)
    assert done(parts) == [-item for item in range(13)] and not any(part.fault for part in parts)
    assert survivor.limit == 3 and survivor.cut == 2
    memory.runs.clear()
    survivor.run(range(13), memory.run, repeatable=True)
    assert memory.runs == [3, 3, 3, 3, 1], "later passes are small from the start"


def test_what_does_not_fit_alone_is_lost_alone() -> None:
    def run(items: list[int]) -> list[int]:
        if 5 in items:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return items

    parts = Survivor().run(range(8), run, repeatable=True)
    assert [part.items for part in parts if part.fault] == [[5]]
    assert [part.fault for part in parts if part.fault] == ["memory"]
    assert done(parts) == [0, 1, 2, 3, 4, 6, 7]


def test_what_may_not_be_repeated_is_not() -> None:
    memory, survivor = Memory(3), Survivor()
    (part,) = survivor.run(range(8), memory.run, repeatable=False)
    assert (part.fault, memory.runs, survivor.limit) == ("memory", [8], 4)


def test_whatever_else_breaks_takes_the_whole_pass() -> None:
    memory, survivor = Memory(9, poison=2), Survivor()
    (part,) = survivor.run(range(4), memory.run, repeatable=True)
    assert (part.items, part.result, part.fault) == ([0, 1, 2, 3], None, "engine")
    assert survivor.limit == UNBOUNDED


def test_passes_grow_again_after_many_that_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, survivor = Memory(2), Survivor()
    survivor.run(range(8), memory.run, repeatable=True)
    assert survivor.limit == 2
    monkeypatch.setattr(survive, "GROW_AFTER", 3)
    memory.room = 100
    for _ in range(40):
        survivor.run([1], memory.run, repeatable=True)
    assert survivor.limit == 2, "small passes say nothing"
    for _ in range(40):
        survivor.run(range(64), memory.run, repeatable=True)
    assert survivor.limit > 64


def test_the_limit_never_falls_below_one() -> None:
    memory, survivor = Memory(0), Survivor()
    for _ in range(3):
        parts = survivor.run(range(4), memory.run, repeatable=True)
        assert [part.fault for part in parts] == ["memory"] * 4
    assert survivor.limit == 1


@pytest.mark.parametrize(
    ("error", "starved"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, starved: bool) -> None:
    assert out_of_memory(error) is starved
