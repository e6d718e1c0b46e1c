"""One segment's life in the origin: queued, then running in slots, perhaps queued again, then ended.

Decides: which moves are legal and what a sequence has produced, used and waited for.
Must not know: which sequence goes first (scheduler.py), what an id means, any clock.
Invariants: slots are held exactly while running; ids once produced never change, nor are they lost with the slots.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

from nearsay.wire.messages import FinishReason, Priority


class State(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


# state -> states it may move to
MOVES: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.ENDED}),
    State.RUNNING: frozenset({State.QUEUED, State.ENDED}),
    State.ENDED: frozenset(),
}


# Whose draft is tried first: the caller's, a session's, the two merged, the same source's under another model version.
DraftSource = Literal["edge", "session", "merged", "past"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A request that passed the door: nothing in it needs checking again.

    id: unique within the process. source: ids with the closing eos. draft: proposed target ids of the model's target
    vocabulary, from draft_source; draft_more: further drafts for where that one fails, an eos before each.
    caller_draft: what the caller itself proposed. toward: ids that are preferred with weight `bias`, as far as the
    translation follows them. width: beam width, 1 = greedy, at least n_best. arrived, deadline:
    monotonic seconds.
    """

    id: int
    model: str
    source: tuple[int, ...]
    arrived: float
    deadline: float
    draft: tuple[int, ...] = ()
    target_tokens_max: int = 256
    width: int = 1
    priority: Priority = "interactive"
    stream: bool = False
    want_log_prob: bool = False
    tenant: str = ""
    draft_source: DraftSource = "edge"
    want_alignment: bool = False
    n_best: int = 1
    draft_more: tuple[int, ...] = ()
    caller_draft: tuple[int, ...] = ()
    bias: float = 0.0
    toward: tuple[int, ...] = ()
    length_penalty: float = 1.0


class Sequence:
    """A spec and what has become of it. Written by the scheduler alone."""

    __slots__ = (
        "accepted",
        "alignment",
        "doomed",
        "drafted",
        "encode_s",
        "evictions",
        "faults",
        "kept",
        "log_prob",
        "n_best",
        "produced",
        "queued_s",
        "since",
        "slots",
        "spec",
        "state",
        "steps",
    )

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.state = State.QUEUED
        self.slots: tuple[int, ...] = ()
        self.produced: list[int] = []
        self.since = spec.arrived  # of the present state
        self.queued_s = 0.0
        self.encode_s = 0.0
        self.steps = 0
        self.drafted = 0
        self.accepted = 0
        self.log_prob: float | None = None
        self.evictions = 0
        self.faults = 0  # broken passes that it was in
        self.kept = False  # keeps its slots to the end
        self.doomed = False  # was expected to miss its deadline when it came
        self.alignment: tuple[int, ...] = ()
        self.n_best: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return f"<Sequence {self.spec.id} {self.state.value} slots={self.slots} produced={len(self.produced)}>"

    @property
    def order(self) -> tuple[float, int]:
        """Place among its like: earliest deadline first, then first come first served."""
        return (self.spec.deadline, self.spec.id)

    @property
    def draft(self) -> tuple[int, ...]:
        """Drafted ids to hand to the engine: in the first step only, and not if that broke."""
        return () if self.steps or self.faults else self.spec.draft + self.spec.draft_more

    @property
    def reads(self) -> int:
        """Tokens that the engine must read to take this sequence in: the source, and what is known of the target."""
        drafted = 0 if self.steps or self.faults else len(self.spec.draft)
        return len(self.spec.source) + drafted + len(self.produced)

    @property
    def at_stake(self) -> int:
        """Decoder passes, of all its rows, that are lost with the slots: a beam's, whose ids only stand at its end."""
        return self.steps * self.spec.width if self.spec.width > 1 else 0

    @property
    def cost(self) -> int:
        """What a tenant pays, in tokens: those to read, and as many steps of each row as the source is long. Nothing
        for one that comes back: it has paid."""
        if self.evictions:
            return 0
        return (1 + self.spec.width) * len(self.spec.source) + len(self.spec.draft)

    def admit(self, slots: tuple[int, ...], now: float) -> None:
        """Leave the queue with `width` slots."""
        assert len(slots) == self.spec.width, (self, slots)
        self._move(State.RUNNING)
        self.slots = slots
        self.queued_s += max(now - self.since, 0.0)
        self.since = now

    def evict(self, now: float) -> tuple[int, ...]:
        """Go back to the queue with what has been produced. Returns the slots that are free now."""
        self._move(State.QUEUED)
        if self.at_stake:
            self.steps = 0
        slots, self.slots = self.slots, ()
        self.since = now
        self.evictions += 1
        return slots

    def end(self) -> tuple[int, ...]:
        """Leave for good. Returns the slots that are free now."""
        self._move(State.ENDED)
        slots, self.slots = self.slots, ()
        return slots

    def _move(self, to: State) -> None:
        assert to in MOVES[self.state], f"{self} can't become {to.value}"
        self.state = to

    def stages_ms(self, now: float) -> dict[str, float]:
        """Time from arrival to now: waiting, encoding (of the whole ragged batch it was in), and the rest. To be asked
        before the end."""
        queue_s = self.queued_s + (max(now - self.since, 0.0) if self.state is State.QUEUED else 0.0)
        decode_s = now - self.spec.arrived - queue_s - self.encode_s
        parts = {"origin_queue": queue_s, "encode": self.encode_s, "decode": decode_s}
        return {stage: max(seconds, 0.0) * 1e3 for stage, seconds in parts.items()}


class Ending(msgspec.Struct, frozen=True):
    """What is left of a sequence that ended. `ids` without prefix and eos; `steps`: decoder passes it was part of;
    `error`: the code that stands for "failed"."""

    reason: FinishReason
    ids: tuple[int, ...]
    stages_ms: dict[str, float]
    steps: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0
    log_prob: float | None = None
    alignment: tuple[int, ...] = ()
    n_best: tuple[tuple[int, ...], ...] = ()
    error: str = "internal_error"
