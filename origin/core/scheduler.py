"""Whom the origin decodes for, and what becomes of each.

Decides: who is queued, refused, expired, and what every ending looks like. Who runs in a step is planner.py's.
Must not know: tensors, weights, sockets, threads, which clock `now` comes from.
Invariants: every submitted sequence has exactly one Ended or Refused effect; a sequence that left has left its slots
in the same call; free slots and those of running sequences are together all slots of a model, each once.
Order: interactive before batch, then tenants in turn (fairness.py), then earliest deadline first.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nearsay.wire.errors import InternalError
from nearsay.wire.messages import FinishReason
from origin.core.admission import Mode, late_s
from origin.core.batch_share import BatchRules
from origin.core.counts import Counts
from origin.core.deadlines import Deadlines
from origin.core.draft_len import EDGE, DraftRules
from origin.core.encode_window import EncodeWindow
from origin.core.model import ServedModel
from origin.core.plan import Effect, Ended, Fault, Load, Outcome, Plan, Produced, Refused, Result
from origin.core.planner import Planner
from origin.core.resident import Resident
from origin.core.sequence import Ending, Sequence, Spec, State
from origin.core.waiting import CLASSES, WaitingRoom

REPLAYS_MAX = 1  # of a sequence that was in a broken pass; from then on it runs alone


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds and rules of the scheduler.

    queue_max, batch_queue_max: how many of a class may wait. tenant_share_max: the part of a queue that one tenant may
    take. tenants_max: tenants told apart in a class; more share one line. tenant_quantum: cost (about three tokens per
    source token) that a tenant is served before the next one's turn.
    encode_tokens_per_step: source and draft tokens of the sequences admitted in one step, so that newcomers can't hold
    up those who run. At least what the largest single request has.
    encode_window_s: newcomers may wait that long for company while others decode (encode_window.py).
    admission: whether sequences that can't meet their deadline are turned away: off, dark (only counted), on.
    drafts_running_max: drafts are neither asked for nor verified while more sequences of a model run than this, even if
    they seem to pay (draft_len.py).
    """

    queue_max: int = 1024
    batch_queue_max: int = 4096
    tenant_share_max: float = 0.75
    tenants_max: int = 256
    tenant_quantum: int = 256
    encode_tokens_per_step: int = 512
    encode_window_s: float = 0.002
    admission: Mode = "dark"
    batch: BatchRules = BatchRules()
    drafts_running_max: int = 16

    def __post_init__(self) -> None:
        positive = (self.queue_max, self.batch_queue_max, self.encode_tokens_per_step, self.tenants_max)
        if min(*positive, self.tenant_quantum) < 1 or self.drafts_running_max < 0:
            raise ValueError("a limit of the scheduler is not positive")
        if not 0.0 < self.tenant_share_max <= 1.0 or not 0.0 <= self.encode_window_s <= 0.002:
            raise ValueError("tenant_share_max is not in (0, 1], or encode_window_s not in [0, 0.002]")


def largest_request(models: Iterable[ServedModel]) -> int:
    """Source and draft tokens of the largest request that the door lets in."""
    return max((model.source_tokens_max + model.target_tokens_max for model in models), default=0)


class Scheduler:
    """The single writer of all sequences. Calls carry `now`, monotonic seconds."""

    def __init__(self, models: Iterable[ServedModel], limits: Limits) -> None:
        self._limits = limits
        self._residents: dict[str, Resident] = {}
        self._drafts = DraftRules((), limits.drafts_running_max)
        self._waiting = WaitingRoom(
            {"interactive": limits.queue_max, "batch": limits.batch_queue_max},
            tenant_quantum=limits.tenant_quantum,
            tenants_max=limits.tenants_max,
            tenant_share_max=limits.tenant_share_max,
        )
        self._sequences: dict[int, Sequence] = {}
        self._deadlines = Deadlines()
        self._window = EncodeWindow(limits.encode_window_s)
        self.counts = Counts()
        self._planner = Planner(
            self._residents,
            self._waiting,
            limits.batch,
            encode_tokens=limits.encode_tokens_per_step,
            window=self._window,
            counts=self.counts,
        )
        for model in models:
            self.open(model)

    def __len__(self) -> int:
        """Sequences that have not ended."""
        return len(self._sequences)

    def __repr__(self) -> str:
        return f"<Scheduler {len(self._waiting)} waiting, running in {[*self._residents.values()]}>"

    def open(self, model: ServedModel) -> None:
        """Take sequences for one more model."""
        assert model.name not in self._residents, f"{model.name} is open"
        assert largest_request([model]) <= self._limits.encode_tokens_per_step, "one could never be admitted"
        self._residents[model.name] = Resident(model)
        self._drafts.open(model)

    def close(self, model: str) -> bool:
        """Give up a model for which nothing is submitted any more. False, and nothing done, while it has sequences."""
        if len(self._residents[model]) or any(self._waiting.queued(each, model).sequences for each in CLASSES):
            return False
        del self._residents[model]
        self._drafts.close(model)
        self._waiting.forget(model)
        return True

    def submit(self, spec: Spec, now: float) -> list[Effect]:
        """Queue a sequence, or refuse it: its queue is full, or it can't meet its deadline."""
        assert spec.id not in self._sequences, f"sequence {spec.id} submitted twice"
        if self._waiting.full(spec.priority, spec.tenant):
            self.counts.refused_full += 1
            return [Refused(spec.id, "overloaded", retry_after_ms=self._planner.waited_s * 1e3)]
        sequence = Sequence(self._drafts.sift(spec, len(self._residents[spec.model])))
        if (retry_s := self._late_s(sequence, now)) > 0.0:
            sequence.doomed = True
            self.counts.forecast_late += 1
            if self._limits.admission == "on":
                return [Refused(spec.id, "overloaded", retry_after_ms=retry_s * 1e3)]
        self._planner.queue(sequence, now)
        self._sequences[spec.id] = sequence
        self._deadlines.add(spec.id, spec.deadline)
        if spec.priority == "interactive":
            self._window.arrive(now)
        return []

    def cancel(self, sequence_id: int, now: float) -> list[Effect]:
        """End a sequence now; its slots are free in the next plan. Nothing happens when it has ended already."""
        sequence = self._sequences.get(sequence_id)
        return [] if sequence is None else [self._leave(sequence, "cancelled", now)]

    def cancel_all(self, now: float) -> list[Effect]:
        """End everyone."""
        return [self._leave(sequence, "cancelled", now) for sequence in list(self._sequences.values())]

    def plan(self, now: float) -> Plan:
        """Expire the late, admit the next, and take everyone for whom the step has room one step on."""
        late = self._deadlines.passed(now, self._sequences)
        effects = tuple([self._leave(self._sequences[number], "expired", now) for number in late])
        self._deadlines.sweep(self._sequences)
        batches = self._planner.batches(now)
        dropped, self._planner.dropped = tuple(self._planner.dropped), []
        return Plan(batches, dropped, effects)

    def apply(self, result: Result, now: float) -> list[Effect]:
        """Take in what a step came to. Outcomes of sequences that left meanwhile are passed over."""
        effects: list[Effect] = []
        for outcome in result.outcomes:
            sequence = self._sequences.get(outcome.sequence)
            if sequence is None or sequence.state is not State.RUNNING:
                continue
            if outcome.fault:
                effects += self._broken(sequence, outcome.fault, useless=result.useless, now=now)
                continue
            self._note(sequence, outcome)
            self._drafts.note(sequence.spec, outcome)
            if outcome.finish is not None:
                effects.append(self._leave(sequence, outcome.finish, now))
            elif sequence.spec.stream and outcome.ids:
                effects.append(Produced(sequence.spec.id, outcome.ids))
        return effects

    def start_over(self, now: float) -> None:
        """The engine has lost all it knew, by nobody's fault: everyone who runs begins again behind what it had."""
        for resident in self._residents.values():
            for sequence in list(resident):
                self._planner.put_back(sequence, now)

    def measured(self, plan: Plan, seconds: float) -> None:
        """Learn what a step took. Models that shared it are charged in proportion to what was expected of each."""
        shares = [(self._residents[batch.model].cost, batch.work) for batch in plan.batches]
        expected = [cost.predict(work) for cost, work in shares]
        for (cost, work), part in zip(shares, expected, strict=True):
            cost.observe(work, seconds * part / sum(expected))

    def load(self) -> Load:
        """How busy we are, and for which models a draft would pay."""
        waiting = len(self._waiting)
        return Load(
            queued=waiting,
            running=len(self._sequences) - waiting,
            slots_free=sum(resident.pool.free for resident in self._residents.values()),
            wants_drafts=tuple(
                name
                for name, resident in self._residents.items()
                if resident.model.beam == 1 and self._drafts.pay(name, EDGE, len(resident))
            ),
            counts=msgspec.structs.replace(self.counts),
            drafts=self._drafts.use(),
        )

    def check(self) -> None:
        """Assert the invariants; cheap enough to call whenever the loop falls idle."""
        for resident in self._residents.values():
            resident.check()
        running = sum(map(len, self._residents.values()))
        assert running + len(self._waiting) == len(self._sequences), (running, len(self._waiting))

    def _late_s(self, sequence: Sequence, now: float) -> float:
        if self._limits.admission == "off":
            return 0.0
        return late_s(sequence, self._residents[sequence.spec.model], self._waiting, self._planner.decode_s(), now)

    def _broken(self, sequence: Sequence, fault: Fault, *, useless: bool, now: float) -> list[Effect]:
        """A pass did nothing for a sequence.

        One that broke may be another's fault, so each that was in it is tried again, alone. What breaks alone while
        others go on is itself at fault: tried elsewhere it would break that, too.
        """
        if fault == "engine" and sequence.faults < REPLAYS_MAX:
            sequence.faults += 1
            self.counts.replays += 1
            self._planner.put_back(sequence, now)
            return []
        error = "overloaded" if fault == "memory" else "unavailable" if useless else "internal_error"
        return [self._leave(sequence, "failed", now, error)]

    @staticmethod
    def _note(sequence: Sequence, outcome: Outcome) -> None:
        sequence.produced.extend(outcome.ids)
        sequence.steps += outcome.passes
        sequence.encode_s += outcome.encode_s
        sequence.drafted += outcome.drafted
        sequence.accepted += outcome.accepted
        sequence.log_prob = outcome.log_prob
        sequence.alignment, sequence.n_best = outcome.alignment, outcome.n_best
        assert len(sequence.produced) <= sequence.spec.target_tokens_max, sequence

    def _leave(
        self, sequence: Sequence, reason: FinishReason, now: float, error: str = InternalError.default_code
    ) -> Ended:
        """The one way out: whatever the sequence held is free when this returns."""
        spec = sequence.spec
        stages_ms = sequence.stages_ms(now)
        resident = self._residents[spec.model]
        if sequence.state is State.RUNNING:
            del resident.running[spec.priority][spec.id]
            self._planner.dropped.append(spec.id)
            resident.pool.give(sequence.slots)
        else:
            self._waiting.remove(sequence)
        sequence.end()
        del self._sequences[spec.id]
        if reason in ("stop", "length"):
            resident.note_end(sequence)
        if reason == "stop":
            self._drafts.note_end(sequence)
        self.counts.forecast_late_in_time += sequence.doomed and reason in ("stop", "length")
        self.counts.forecast_missed += not sequence.doomed and reason == "expired"
        ending = Ending(
            reason=reason,
            ids=tuple(sequence.produced),
            stages_ms=stages_ms,
            steps=sequence.steps,
            draft_tokens=sequence.drafted,
            draft_accepted=sequence.accepted,
            log_prob=sequence.log_prob,
            alignment=sequence.alignment,
            n_best=sequence.n_best,
            error=error,
        )
        return Ended(spec.id, ending)
