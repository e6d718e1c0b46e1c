"""One segment's life in the origin: queued, then running in slots, then ended.

Decides: which moves are legal and what a sequence has produced, used and waited for.
Must not know: which sequence goes first (scheduler.py), what an id means, any clock.
Invariants: slots are held exactly while running; ids once produced never change; arrived <= admitted <= ended.
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
    State.RUNNING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


DraftSource = Literal["edge", "session"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A request that passed the door: nothing in it needs checking again.

    id: unique within the process. source: ids with the closing eos. draft: proposed target ids of the model's target
    vocabulary, from draft_source; several drafts have an eos between them. width: beam width, 1 = greedy, at least
    n_best. arrived, deadline: monotonic seconds.
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


class Sequence:
    """A spec and what has become of it. Written by the scheduler alone."""

    __slots__ = (
        "accepted",
        "admitted",
        "alignment",
        "drafted",
        "encode_s",
        "log_prob",
        "n_best",
        "produced",
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
        self.admitted: float | None = None
        self.encode_s = 0.0
        self.steps = 0
        self.drafted = 0
        self.accepted = 0
        self.log_prob: float | None = None
        self.alignment: tuple[int, ...] = ()
        self.n_best: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return f"<Sequence {self.spec.id} {self.state.value} slots={self.slots} produced={len(self.produced)}>"

    @property
    def order(self) -> tuple[float, int]:
        """Place among its like: earliest deadline first, then first come first served."""
        return (self.spec.deadline, self.spec.id)

    def admit(self, slots: tuple[int, ...], now: float) -> None:
        """Leave the queue with `width` slots."""
        assert len(slots) == self.spec.width, (self, slots)
        self._move(State.RUNNING)
        self.slots = slots
        self.admitted = max(now, self.spec.arrived)

    def end(self) -> tuple[int, ...]:
        """Leave for good. Returns the slots that are free now."""
        self._move(State.ENDED)
        slots, self.slots = self.slots, ()
        return slots

    def _move(self, to: State) -> None:
        assert to in MOVES[self.state], f"{self} can't become {to.value}"
        self.state = to

    def stages_ms(self, now: float) -> dict[str, float]:
        """Time from arrival to now: waiting, encoding (of the whole ragged batch it was in), and the rest."""
        admitted = now if self.admitted is None else self.admitted
        queue_s, decode_s = admitted - self.spec.arrived, now - admitted - self.encode_s
        parts = {"origin_queue": queue_s, "encode": self.encode_s, "decode": decode_s}
        return {stage: max(seconds, 0.0) * 1e3 for stage, seconds in parts.items()}


class Ending(msgspec.Struct, frozen=True):
    """What is left of a sequence that ended. `ids` without prefix and eos; `steps`: decoder passes it was part of."""

    reason: FinishReason
    ids: tuple[int, ...]
    stages_ms: dict[str, float]
    steps: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0
    log_prob: float | None = None
    alignment: tuple[int, ...] = ()
    n_best: tuple[tuple[int, ...], ...] = ()
