"""How much batch work rides along in a step.

Decides: which running batch sequences a step takes on and which pause in their slots, and when a model's batch work has
waited so long that it has a turn.
Must not know: the queue's order, how a step is run.
Rules: while interactive work is in a step, batch work is added up to `step_ratio` times the seconds that interactive
work alone is predicted to take (ADR 7). A model's batch work that was not taken on, or not taken in, for `wait_s` has a
turn: at least one sequence, and `turn_s` to spend beyond the ratio. So it never starves, and costs interactive work no
more than turn_s (or one sequence) in wait_s. Who was admitted first is taken on first, so that sequences end.
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

    step_ratio: float = 1.15
    wait_s: float = 0.25
    turn_s: float = 0.025
    read_s: float = 0.015
    evictions_max: int = 2

    def __post_init__(self) -> None:
        if self.step_ratio < 1.0 or not min(self.wait_s, self.turn_s, self.read_s) > 0 or self.evictions_max < 0:
            raise ValueError("batch rules: step_ratio at least 1, seconds positive, evictions_max not negative")


def limit_s(rules: BatchRules, alone_s: float) -> float:
    """What batch work may bring a step to that takes `alone_s` without it; 0 = there is no interactive work in it."""
    return rules.step_ratio * alone_s if alone_s else float("inf")


def ride(step: Step, resident: Resident, rules: BatchRules, limit: float, now: float) -> int:
    """Take on a model's batch sequences that fit into a step of `limit` seconds, or have a turn. Returns how many."""
    owed = now - resident.batch_stepped >= rules.wait_s
    if owed:
        resident.turn_s = rules.turn_s
    room_s, before_s = max(limit - step.seconds, 0.0), step.seconds
    riding = _fitting(step, resident, room_s + resident.turn_s, one=owed)
    step.take_on(resident, riding)
    beyond_s = max(step.seconds - before_s - room_s, 0.0)
    resident.turn_s = max(resident.turn_s - beyond_s, 0.0)
    resident.note_ride(len(riding), now)
    return len(riding)


def _fitting(step: Step, resident: Resident, room_s: float, *, one: bool) -> list[Sequence]:
    fitting: list[Sequence] = []
    rows = 0
    for sequence in resident.running["batch"].values():
        rows += len(sequence.slots)
        if step.price(resident, rows) > room_s and (fitting or not one):
            break
        fitting.append(sequence)
    return fitting
