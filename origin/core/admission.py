"""Whether a newcomer can meet its deadline.

Decides: when a sequence would finish if it were queued now, and by how much that is too late.
Must not know: who waits by name, clocks, what becomes of the verdict.
The estimate errs towards letting in: others may cancel or end early, and nothing is said before enough steps have been
measured.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from nearsay.wire.messages import Priority
from origin.core.resident import Resident
from origin.core.sequence import Sequence
from origin.core.step_cost import StepCost, Work
from origin.core.waiting import WaitingRoom

Mode = Literal["off", "dark", "on"]
"""off: not asked. dark: asked, counted and compared with what happens; nobody is turned away. on: enforced."""

OBSERVATIONS_MIN = 16
PACE_MIN = 0.02
LATE_MAX_S = 60.0


class Line(NamedTuple):
    """What a newcomer finds before it. Rows are slots, held or waited for by those whom it can't pass.

    others_s: what other models add to a step. steps_typical: of one sequence. pace: share of the steps that its class
    is taken on in.
    """

    slots: int
    rows_running: int
    rows_waiting: int
    tokens_waiting: int
    steps_typical: float
    others_s: float = 0.0
    pace: float = 1.0


class Newcomer(NamedTuple):
    """rows: slots it needs. tokens: to be read for it. steps: it will need."""

    rows: int
    tokens: int
    steps: float


def time_to_finish(line: Line, newcomer: Newcomer, cost: StepCost) -> float | None:
    """Seconds from now until a newcomer's end; None while too little is known.

    While all slots are busy, slots / steps_typical rows end in a step; as many rows as are too many for the slots must
    end before the newcomer starts.
    """
    if cost.seen < OBSERVATIONS_MIN:
        return None
    rows = line.rows_running + line.rows_waiting + newcomer.rows
    excess = max(rows - line.slots, 0)
    step_s = cost.predict(Work(min(rows, line.slots))) + line.others_s
    steps = excess * line.steps_typical / line.slots + newcomer.steps
    read_s = cost.token_s * (line.tokens_waiting + newcomer.tokens)
    return read_s + steps * step_s / max(line.pace, PACE_MIN)


def line(priority: Priority, resident: Resident, waiting: WaitingRoom, decode_s: float) -> Line:
    """What a newcomer of a class finds before it: interactive work passes batch work and takes its slots, batch work
    passes nobody. decode_s: predicted seconds of a step of all who run."""
    batch = priority == "batch"
    classes: tuple[Priority, ...] = ("interactive", "batch") if batch else ("interactive",)
    queued = [waiting.queued(each, resident.name) for each in classes]
    return Line(
        slots=resident.pool.size,
        rows_running=sum(map(resident.rows, classes)),
        rows_waiting=sum(line.rows for line in queued),
        tokens_waiting=sum(line.tokens for line in queued),
        steps_typical=resident.steps_typical,
        others_s=decode_s - resident.full_step_s(),
        pace=resident.pace if batch else 1.0,
    )


def late_s(sequence: Sequence, resident: Resident, waiting: WaitingRoom, decode_s: float, now: float) -> float:
    """By how much a newcomer is expected to miss its deadline, also the time after which it may try again: by then as
    much has been done as is too much now. 0 when it isn't late; at most LATE_MAX_S."""
    spec = sequence.spec
    newcomer = Newcomer(spec.width, sequence.reads, resident.steps(sequence))
    finish_s = time_to_finish(line(spec.priority, resident, waiting, decode_s), newcomer, resident.cost)
    return 0.0 if finish_s is None else min(max(now + finish_s - spec.deadline, 0.0), LATE_MAX_S)
