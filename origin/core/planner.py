"""Who gets slots, and who is taken on in the next step.

Decides: a step's newcomers (in the order of waiting.py), who gives up slots for them, and how much batch work rides
along (batch_share.py).
Must not know: how sequences come and end, what an outcome is.
Invariants: interactive sequences that run are always taken on; a newcomer is taken on in the step that admits it.
Strict order: while the first in line of a model lacks slots, nobody of that model passes it; while it lacks encode
tokens, or newcomers are held over for company, nobody at all does. The one exception is a batch turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from origin.core.batch_share import BatchRules, limit_s, ride
from origin.core.counts import Counts
from origin.core.encode_window import EncodeWindow
from origin.core.plan import Batch
from origin.core.preemption import victims
from origin.core.resident import Resident
from origin.core.sequence import Sequence
from origin.core.step import Step
from origin.core.waiting import WaitingRoom


class Planner:
    """Works on the scheduler's residents and waiting room. `dropped`: whoever lost slots since it was last emptied."""

    def __init__(
        self,
        residents: Mapping[str, Resident],
        waiting: WaitingRoom,
        rules: BatchRules,
        *,
        encode_tokens: int,
        window: EncodeWindow,
        counts: Counts,
    ) -> None:
        self._residents = residents
        self._waiting = waiting
        self._rules = rules
        self._encode_tokens = encode_tokens
        self._window = window
        self._counts = counts
        self.dropped: list[int] = []
        self.waited_s = 0.0  # by the last one admitted

    def batches(self, now: float) -> tuple[Batch, ...]:
        """The next step, by model."""
        step = Step(self._encode_tokens)
        blocked: set[str] = set()
        seated = self._seat_owed(step, blocked, now)
        passable = self._interactive(step, blocked, now)
        alone_s = step.seconds
        for name, sequence in seated.items():
            step.take_in(self._residents[name], sequence)
        blocked |= self._running_batch(step, alone_s, seated.keys(), now)
        if passable:
            self._new_batch(step, alone_s, blocked, now)
        return step.batches(self._residents.values())

    def decode_s(self) -> float:
        """Predicted seconds of a step of all who run, without newcomers."""
        return sum([resident.full_step_s() for resident in self._residents.values()])

    # ---- who is taken on ---------------------------------------------------------------------------------------------

    def _interactive(self, step: Step, blocked: set[str], now: float) -> bool:
        """Interactive sequences that run, and newcomers. Whether batch newcomers may come after them."""
        for resident in self._residents.values():
            step.take_on(resident, resident.running["interactive"].values())
        if self._waiting.count("interactive") and self._window.hold(now, self.decode_s()):
            self._counts.held += 1
            return False
        while (sequence := self._waiting.first("interactive", blocked)) is not None:
            if sequence.reads > step.tokens_left:
                return False
            resident = self._residents[sequence.spec.model]
            self._make_room(sequence, resident, now)
            if self._seat(sequence, resident, step, now):
                step.take_in(resident, sequence)
            else:
                blocked.add(resident.name)
        return True

    def _running_batch(self, step: Step, alone_s: float, seated: Set[str], now: float) -> set[str]:
        """Batch sequences that run, those of the model that waited longest first. Returns models where some pause."""
        limit = limit_s(self._rules, alone_s)
        pausing: set[str] = set()
        for resident in sorted(self._residents.values(), key=lambda resident: resident.batch_stepped):
            running = len(resident.running["batch"])
            if not running or resident.name in seated:
                continue
            riding = ride(step, resident, self._rules, limit, now)
            if riding < running:
                pausing.add(resident.name)
                self._counts.paused_rows += running - riding
        return pausing

    def _new_batch(self, step: Step, alone_s: float, blocked: set[str], now: float) -> None:
        """Batch newcomers: those of models that have a turn, then as many as there is room for."""
        if not alone_s:
            self._admit_batch(step, step.seconds + self._rules.read_s, blocked, now, one=True)
            return
        for resident in self._residents.values():
            if self._admission_owed(resident, now) and resident.name not in blocked:
                others = self._residents.keys() - {resident.name}
                self._admit_batch(step, alone_s + self._rules.turn_s, others, now, one=True)
        self._admit_batch(step, limit_s(self._rules, alone_s), blocked, now, one=False)

    def _admit_batch(self, step: Step, limit: float, blocked: Set[str], now: float, *, one: bool) -> None:
        """Batch newcomers that fit into a step of `limit` seconds, and the first anyway if `one`."""
        full = set(blocked)
        while (sequence := self._waiting.first("batch", full)) is not None:
            resident = self._residents[sequence.spec.model]
            seconds = step.seconds + step.price(resident, sequence.spec.width, sequence.reads)
            if sequence.reads > step.tokens_left or not (one or seconds <= limit):
                return
            if self._seat(sequence, resident, step, now):
                step.take_in(resident, sequence)
                one = False
            else:
                full.add(resident.name)

    # ---- who gets slots ----------------------------------------------------------------------------------------------

    def _admission_owed(self, resident: Resident, now: float) -> bool:
        return now - resident.batch_admitted >= self._rules.wait_s and self._batch_waits(resident)

    def _batch_waits(self, resident: Resident) -> bool:
        return self._waiting.queued("batch", resident.name).sequences > 0

    def _seat_owed(self, step: Step, blocked: set[str], now: float) -> dict[str, Sequence]:
        """Where no batch sequence runs, a turn goes before interactive work, which could hold all slots for ever. Who
        is seated so keeps its slots; until it is, nobody else of its model is. Returns the seated by model."""
        seated: dict[str, Sequence] = {}
        for resident in self._residents.values():
            if resident.running["batch"] or not self._admission_owed(resident, now):
                continue
            sequence = self._waiting.first("batch", self._residents.keys() - {resident.name})
            assert sequence is not None, resident
            if sequence.reads > step.tokens_left:
                continue
            if self._seat(sequence, resident, step, now):
                sequence.kept = True
                seated[resident.name] = sequence
            else:
                blocked.add(resident.name)
        return seated

    def _seat(self, sequence: Sequence, resident: Resident, step: Step, now: float) -> bool:
        """Give a waiting sequence its slots, if they are free."""
        spec = sequence.spec
        slots = resident.pool.take(spec.width)
        if slots is None:
            return False
        self._waiting.remove(sequence, served=True)
        self.waited_s = now - sequence.since
        self._counts.resumes += sequence.evictions > 0
        step.tokens_left -= sequence.reads
        sequence.admit(slots, now)
        resident.running[spec.priority][spec.id] = sequence
        if spec.priority == "batch":
            resident.batch_admitted = resident.batch_stepped = now
        return True

    def _make_room(self, sequence: Sequence, resident: Resident, now: float) -> None:
        """Evict batch sequences if that gives an interactive one its slots."""
        lacking = sequence.spec.width - resident.pool.free
        if lacking <= 0:
            return
        for victim in victims(resident.running["batch"].values(), lacking, self._rules.evictions_max):
            self.put_back(victim, now)
            self._counts.evictions += 1

    def put_back(self, sequence: Sequence, now: float) -> None:
        """Take a running sequence's slots and put it in line again, behind what it has produced."""
        spec = sequence.spec
        resident = self._residents[spec.model]
        del resident.running[spec.priority][spec.id]
        self._counts.row_steps_lost += sequence.at_stake
        resident.pool.give(sequence.evict(now))
        self.dropped.append(spec.id)
        self.queue(sequence, now)

    def queue(self, sequence: Sequence, now: float) -> None:
        """Put a sequence in line."""
        resident = self._residents[sequence.spec.model]
        if sequence.spec.priority == "batch" and not self._batch_waits(resident):
            resident.batch_admitted = now  # it begins to wait
        self._waiting.add(sequence)
