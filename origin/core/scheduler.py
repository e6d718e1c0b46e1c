"""Who decodes in the next step.

Decides: who is queued, refused, admitted to slots, taken on, expired, and what every ending looks like.
Must not know: tensors, weights, sockets, threads, which clock `now` comes from.
Invariants: every submitted sequence has exactly one Ended or Refused effect; a sequence that left has left its slots
in the same call; free slots and those of running sequences are together all slots of a model, each once.
Strict order: while the first in line of a model lacks slots, or lacks encode tokens, nobody passes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nearsay.wire.messages import FinishReason
from origin.core.draft_len import EDGE, DraftRules
from origin.core.model import ServedModel
from origin.core.plan import Batch, Effect, Encode, Ended, Load, Outcome, Plan, Produced, Refused, Result, Row
from origin.core.sequence import Ending, Sequence, Spec, State
from origin.core.slots import SlotPool
from origin.core.waiting import WaitingRoom


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of the scheduler.

    queue_max, batch_queue_max: how many of a class may wait.
    encode_tokens_per_step: source and draft tokens of the sequences admitted in one step, so that newcomers can't hold
    up those who run. At least what the largest single request has.
    drafts_running_max: drafts are neither asked for nor verified while more sequences of a model run than this, even if
    they seem to pay (draft_len.py).
    """

    queue_max: int = 1024
    batch_queue_max: int = 4096
    encode_tokens_per_step: int = 512
    drafts_running_max: int = 16

    def __post_init__(self) -> None:
        if min(self.queue_max, self.batch_queue_max, self.encode_tokens_per_step) < 1 or self.drafts_running_max < 0:
            raise ValueError("a limit of the scheduler is not positive")


def largest_request(models: Iterable[ServedModel]) -> int:
    """Source and draft tokens of the largest request that the door lets in."""
    return max((model.source_tokens_max + model.target_tokens_max for model in models), default=0)


class Scheduler:
    """The single writer of all sequences. Calls carry `now`, monotonic seconds."""

    def __init__(self, models: Iterable[ServedModel], limits: Limits) -> None:
        self._limits = limits
        self._models = {model.name: model for model in models}
        assert largest_request(self._models.values()) <= limits.encode_tokens_per_step, "one could never be admitted"
        self._pools = {name: SlotPool(model.slots) for name, model in self._models.items()}
        self._drafts = DraftRules(self._models.values(), limits.drafts_running_max)
        self._waiting = WaitingRoom({"interactive": limits.queue_max, "batch": limits.batch_queue_max})
        self._sequences: dict[int, Sequence] = {}
        self._running: dict[str, dict[int, Sequence]] = {name: {} for name in self._models}
        self._dropped: list[int] = []
        self._waited_s = 0.0  # by the last one admitted; what a refused caller is told to wait

    def __len__(self) -> int:
        """Sequences that have not ended."""
        return len(self._sequences)

    def __repr__(self) -> str:
        return f"<Scheduler {len(self._waiting)} waiting, running in {self._pools}>"

    def submit(self, spec: Spec, now: float) -> list[Effect]:
        """Queue a sequence, or refuse it when its class's queue is full."""
        assert spec.id not in self._sequences, f"sequence {spec.id} submitted twice"
        if self._waiting.full(spec.priority):
            return [Refused(spec.id, "overloaded", retry_after_ms=self._waited_s * 1e3)]
        spec = self._drafts.sift(spec, len(self._running[spec.model]))
        self._sequences[spec.id] = sequence = Sequence(spec)
        self._waiting.add(sequence)
        return []

    def cancel(self, sequence_id: int, now: float) -> list[Effect]:
        """End a sequence now; its slots are free in the next plan. Nothing happens when it has ended already."""
        sequence = self._sequences.get(sequence_id)
        return [] if sequence is None else [self._leave(sequence, "cancelled", now)]

    def cancel_all(self, now: float) -> list[Effect]:
        """End everyone."""
        return [self._leave(sequence, "cancelled", now) for sequence in list(self._sequences.values())]

    def plan(self, now: float) -> Plan:
        """Expire the late, admit the next, and take everyone who runs one step on."""
        effects = [self._leave(sequence, "expired", now) for sequence in self._late(now)]
        admitted = self._admit(now)
        batches = tuple(
            Batch(name, tuple(admitted.get(name, ())), tuple(map(self._row, running.values())))
            for name, running in self._running.items()
            if running
        )
        dropped, self._dropped = tuple(self._dropped), []
        return Plan(batches, dropped, tuple(effects))

    def apply(self, result: Result, now: float) -> list[Effect]:
        """Take in what a step came to. Outcomes of sequences that left meanwhile are passed over."""
        effects: list[Effect] = []
        for outcome in result.outcomes:
            sequence = self._sequences.get(outcome.sequence)
            if sequence is None or sequence.state is not State.RUNNING:
                continue
            self._note(sequence, outcome)
            self._drafts.note(sequence.spec, outcome)
            if outcome.finish is not None:
                effects.append(self._leave(sequence, outcome.finish, now))
            elif sequence.spec.stream and outcome.ids:
                effects.append(Produced(sequence.spec.id, outcome.ids))
        return effects

    def load(self) -> Load:
        """How busy we are, and for which models a draft would pay."""
        waiting = len(self._waiting)
        return Load(
            queued=waiting,
            running=len(self._sequences) - waiting,
            slots_free=sum(pool.free for pool in self._pools.values()),
            wants_drafts=tuple(
                name
                for name, model in self._models.items()
                if model.beam == 1 and self._drafts.pay(name, EDGE, len(self._running[name]))
            ),
            drafts=self._drafts.use(),
        )

    def check(self) -> None:
        """Assert the invariants; cheap enough to call whenever the loop falls idle."""
        for name, pool in self._pools.items():
            held = [slot for sequence in self._running[name].values() for slot in sequence.slots]
            assert len(held) == len(set(held)) and pool.taken == set(held), (name, held, pool.taken)
            assert pool.free + len(held) == pool.size, (name, pool.free, len(held))
        running = sum(map(len, self._running.values()))
        assert running + len(self._waiting) == len(self._sequences), (running, len(self._waiting))

    def _late(self, now: float) -> list[Sequence]:
        late = self._waiting.expired(now)
        for running in self._running.values():
            late.extend(sequence for sequence in running.values() if sequence.spec.deadline <= now)
        return late

    def _admit(self, now: float) -> dict[str, list[Encode]]:
        """Give slots to those in line, as far as slots and encode tokens go. Returns the newcomers by model."""
        admitted: dict[str, list[Encode]] = {}
        blocked: set[str] = set()
        tokens = self._limits.encode_tokens_per_step
        while (sequence := self._waiting.first(blocked)) is not None:
            spec = sequence.spec
            cost = len(spec.source) + len(spec.draft)
            if cost > tokens:
                break
            slots = self._pools[spec.model].take(spec.width)
            if slots is None:
                blocked.add(spec.model)
                continue
            tokens -= cost
            self._waiting.remove(sequence)
            sequence.admit(slots, now)
            self._waited_s = now - spec.arrived
            self._running[spec.model][spec.id] = sequence
            encode = Encode(
                spec.id,
                slots,
                spec.source,
                spec.target_tokens_max,
                spec.want_log_prob,
                spec.want_alignment,
                spec.n_best,
                spec.tenant,
            )
            admitted.setdefault(spec.model, []).append(encode)
        return admitted

    @staticmethod
    def _row(sequence: Sequence) -> Row:
        """A draft is verified once, in the sequence's first step."""
        draft = () if sequence.steps else sequence.spec.draft
        return Row(sequence.spec.id, sequence.slots, draft)

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

    def _leave(self, sequence: Sequence, reason: FinishReason, now: float) -> Ended:
        """The one way out: whatever the sequence held is free when this returns."""
        spec = sequence.spec
        if sequence.state is State.RUNNING:
            del self._running[spec.model][spec.id]
            self._dropped.append(spec.id)
            self._pools[spec.model].give(sequence.slots)
        else:
            self._waiting.remove(sequence)
        sequence.end()
        del self._sequences[spec.id]
        if reason == "stop":
            self._drafts.note_end(sequence)
        ending = Ending(
            reason=reason,
            ids=tuple(sequence.produced),
            stages_ms=sequence.stages_ms(now),
            steps=sequence.steps,
            draft_tokens=sequence.drafted,
            draft_accepted=sequence.accepted,
            log_prob=sequence.log_prob,
            alignment=sequence.alignment,
            n_best=sequence.n_best,
        )
        return Ended(spec.id, ending)
