"""How much batch work rides along in a step.

Decides: which running batch sequences a step takes on and which pause in their slots, and when a model's batch work has
waited so long that it has a turn.
Must not know: the queue's order, how a step is run.
Rules: while interactive work is in a step, batch work is added up to `step_ratio` times the seconds that interactive
work alone is predicted to take. A model's batch work that was not taken on, or not taken in, for `wait_s` has a turn:
`turn_s` in one step, and at least one sequence. So it never starves, and costs interactive work no more than turn_s (or
one sequence) in wait_s. Who was admitted first is taken on first, so that sequences end.
"""

from __future__ import annotations

import msgspec

from origin.core.resident import Resident
from origin.core.sequence import Sequence
from origin.core.step import Step


class BatchRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """step_ratio, wait_s, turn_s: above. read_s: predicted time that reading batch newcomers may add to a step without
    interactive work, because an interactive newcomer waits for the end of it; at least one is read.
    evictions_max: times that a batch sequence can lose its slots to interactive work; 0 = never.
    """

    step_ratio: float = 1.3
    wait_s: float = 0.25
    turn_s: float = 0.025
    read_s: float = 0.03
    evictions_max: int = 2

    def __post_init__(self) -> None:
        if self.step_ratio < 1.0 or not min(self.wait_s, self.turn_s, self.read_s) > 0 or self.evictions_max < 0:
            raise ValueError("batch rules: step_ratio at least 1, seconds positive, evictions_max not negative")


class Budget:
    """What batch work may bring a step to. `alone_s`: predicted seconds of its interactive work, 0 if there is none."""

    def __init__(self, rules: BatchRules, alone_s: float) -> None:
        self.alone_s = alone_s
        self.common_s = rules.step_ratio * alone_s if alone_s else float("inf")
        self.turn_s = max(self.common_s, alone_s + rules.turn_s)


def ride(step: Step, resident: Resident, limit_s: float, *, one: bool) -> list[Sequence]:
    """The running batch sequences that fit into a step of `limit_s`, and the first of them anyway if `one`."""
    riding: list[Sequence] = []
    rows = 0
    for sequence in resident.running["batch"].values():
        rows += len(sequence.slots)
        if step.seconds + step.price(resident, rows) > limit_s and (riding or not one):
            break
        riding.append(sequence)
    return riding
