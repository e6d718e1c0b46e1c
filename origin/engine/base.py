"""What the engine loop asks of an engine.

An engine loads models, then runs plans. It decides nothing about who runs: plans come from the scheduler, and a
sequence that a plan drops or that has finished is forgotten. All calls come from one thread, the engine thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from origin.core.model import ServedModel
from origin.core.plan import Outcome, Plan, Result


class Engine(Protocol):
    """Runs the models of one process."""

    def load(self) -> tuple[ServedModel, ...]:
        """Load all models, allocate their caches, run a few shapes. Called once, before the first plan."""

    def info(self) -> str:
        """What computes, for people: "torch float32 cpu, 1 thread"."""

    def run(self, plan: Plan) -> Result:
        """One outcome for every row of the plan.

        A failure that concerns some rows ends those with finish "failed" and lets the others go on; an exception
        means that no row of the plan can go on.
        """

    def close(self) -> None:
        """Free what `load` took."""


class _OfSequence(Protocol):
    @property
    def sequence(self) -> int: ...


def failures(broken: Iterable[_OfSequence]) -> list[Outcome]:
    """The outcome of the sequences that a broken pass took with it."""
    return [Outcome(item.sequence, finish="failed") for item in broken]
