"""What the engine loop asks of an engine.

An engine holds models and runs plans. It decides nothing about who runs: plans come from the scheduler, and a sequence
that a plan drops or that has finished is forgotten. All calls come from one thread, the engine thread, but those that
look at a model or make one ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nearsay.text.entry import ModelEntry
from origin.core.model import ServedModel
from origin.core.plan import Fault, Outcome, Plan, Result


class NotFinite(Exception):
    """A model's logits are no numbers."""


class Prepared(Protocol):
    """A model that is loaded and has run, but isn't served yet."""

    @property
    def model(self) -> ServedModel: ...


class Engine(Protocol):
    """Runs the models of one process. `footprint` and `prepare` may be called on another thread, while plans run."""

    @property
    def memory_bytes_max(self) -> int:
        """What all models together may take."""

    def footprint(self, entry: ModelEntry) -> int:
        """Bytes that a model will take, known without loading it. Raises WeightsError."""

    def prepare(self, entry: ModelEntry) -> Prepared:
        """Load a model, allocate its caches, run a few shapes. Raises WeightsError, NotFinite, MemoryError."""

    def adopt(self, prepared: Prepared) -> None:
        """Have plans run a prepared model from now on."""

    def release(self, model: str) -> None:
        """Free a model, of which no sequence is left."""

    def load(self) -> tuple[ServedModel, ...]:
        """Prepare and adopt the models that it was made with, or has when it is started anew after `close`."""

    def keep_warm(self) -> None:
        """Do something small, lest the next step find everything cold. Called between plans, when nothing runs."""

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


def failures(broken: Iterable[_OfSequence], fault: Fault) -> list[Outcome]:
    """The outcome of the sequences that a broken pass took with it."""
    return [Outcome(item.sequence, finish="failed", fault=fault) for item in broken]
