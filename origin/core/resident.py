"""One model as the scheduler sees it: its slots, who runs in them, and what has been learned about it.

Decides: nothing but what a typical sequence costs. The scheduler is the single writer.
Must not know: other models, the queue.
Invariant: the slots of the running sequences are the pool's taken ones, each once (`check`).
"""

from __future__ import annotations

from collections.abc import Iterator

from nearsay.wire.messages import Priority
from origin.core.model import ServedModel
from origin.core.sequence import Sequence
from origin.core.slots import SlotPool
from origin.core.step_cost import StepCost, Work

STEPS_PER_TOKEN = 1.2  # of the source, until sequences have ended
STEPS_TYPICAL = 24.0
MEMORY = 32  # sequences, or steps


class Resident:
    """`batch_stepped`, `batch_admitted`: when a batch sequence was last taken on, or in, or began to wait for it."""

    def __init__(self, model: ServedModel) -> None:
        self.name = model.name
        self.model = model
        self.pool = SlotPool(model.slots)
        self.cost = StepCost()
        self.running: dict[Priority, dict[int, Sequence]] = {"interactive": {}, "batch": {}}
        self.batch_stepped = float("-inf")
        self.batch_admitted = float("-inf")
        self.turn_s = 0.0  # what is left of a batch turn
        self.pace = 1.0  # typical share of the running batch sequences that a step takes on
        self.steps_per_token = STEPS_PER_TOKEN
        self.steps_typical = STEPS_TYPICAL

    def __len__(self) -> int:
        """Running sequences."""
        return len(self.running["interactive"]) + len(self.running["batch"])

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running["interactive"].values()
        yield from self.running["batch"].values()

    def rows(self, priority: Priority) -> int:
        """Slots that a class holds."""
        return sum(len(sequence.slots) for sequence in self.running[priority].values())

    def steps(self, sequence: Sequence) -> float:
        """How many steps a sequence will need."""
        return min(self.steps_per_token * len(sequence.spec.source), sequence.spec.target_tokens_max) + 1.0

    def full_step_s(self) -> float:
        """Seconds of a step that takes on everyone who runs here."""
        return self.cost.predict(Work(len(self.pool.taken)))

    def note_end(self, sequence: Sequence) -> None:
        """Learn from a sequence that came to its natural end."""
        self.steps_per_token += (sequence.steps / len(sequence.spec.source) - self.steps_per_token) / MEMORY
        self.steps_typical += (sequence.steps - self.steps_typical) / MEMORY

    def note_ride(self, riding: int, now: float) -> None:
        """So many of the batch sequences that run here are in a step."""
        self.pace += (riding / len(self.running["batch"]) - self.pace) / MEMORY
        if riding:
            self.batch_stepped = now

    def check(self) -> None:
        held = [slot for sequence in self for slot in sequence.slots]
        assert len(held) == len(set(held)) and self.pool.taken == set(held), (self.name, held, self.pool.taken)
        assert self.pool.free + len(held) == self.pool.size, (self.name, self.pool.free, len(held))
