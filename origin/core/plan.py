"""What crosses the line between scheduler, engine and shell: plan in, result out, effects to perform.

Decides: nothing; these are values.
Must not know: tensors, sockets, clocks.
Invariants: a plan's slots belong to running sequences; every row of a plan has one outcome in its result.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nearsay.wire.messages import FinishReason
from origin.core.counts import Counts
from origin.core.sequence import Ending
from origin.core.step_cost import Work


class Encode(msgspec.Struct, frozen=True):
    """Read a source, and put its projections into the slots (one a beam hypothesis).

    produced: ids that a sequence had before it lost its slots, and log_prob theirs; its first pass replays them.
    toward, bias: ids to prefer, and how much (decoding.lean). length_penalty: of a beam.
    """

    sequence: int
    slots: tuple[int, ...]
    source: tuple[int, ...]
    target_tokens_max: int
    want_log_prob: bool = False
    produced: tuple[int, ...] = ()
    log_prob: float = 0.0
    want_alignment: bool = False
    n_best: int = 1
    scope: str = ""  # whose encoder output this may be answered with
    toward: tuple[int, ...] = ()
    bias: float = 0.0
    length_penalty: float = 1.0


class Row(msgspec.Struct, frozen=True):
    """Take a running sequence on: by one token, or, with a draft, past all of it that stands and one bonus token.

    A draft is handed over once; the engine keeps it, and tries what is left of it in later steps. `alone`: in a pass of
    its own, because a pass that it was in broke.
    """

    sequence: int
    slots: tuple[int, ...]
    draft: tuple[int, ...] = ()
    alone: bool = False


class Batch(msgspec.Struct, frozen=True):
    """One model's share of a step. Sequences in `encode` are also in `rows`; `work` is what they add up to."""

    model: str
    encode: tuple[Encode, ...]
    rows: tuple[Row, ...]
    work: Work = Work()


class Plan(msgspec.Struct, frozen=True):
    """One step. `dropped` sequences lost their slots outside the engine since the last plan: it must forget them before
    it reads any source.

    `effects` follow from planning itself (a sequence expired) and owe nothing to the engine.
    """

    batches: tuple[Batch, ...] = ()
    dropped: tuple[int, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def rows(self) -> int:
        """Sequences that the step takes on."""
        return sum(len(batch.rows) for batch in self.batches)


Fault = Literal["", "memory", "engine"]
"""Why a pass did nothing for a row: not even alone did it fit into memory; or it broke, by whosever fault."""


class Outcome(msgspec.Struct, frozen=True):
    """What one row of a plan came to.

    ids: new target ids without eos; a beam gives all of its ids at the end. finish: None while it goes on.
    encode_s: time that the row's source took to encode, if this step encoded it.
    passes: decoder passes; drafted, accepted: verified draft ids, and how many of them stood.
    alignment: at the end, if asked for, a source position for each of all ids. n_best: at a beam's end, ids of each.
    fault: with finish "failed"; without a fault it is the model's logits that were no numbers.
    """

    sequence: int
    ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    passes: int = 1
    encode_s: float = 0.0
    drafted: int = 0
    accepted: int = 0
    log_prob: float | None = None
    alignment: tuple[int, ...] = ()
    n_best: tuple[tuple[int, ...], ...] = ()
    fault: Fault = ""


class Result(msgspec.Struct, frozen=True):
    """What a step came to. encoded, reused: sources that were encoded, and that had been before. cut: passes that ran
    out of memory and were cut into smaller ones."""

    outcomes: tuple[Outcome, ...] = ()
    encoded: int = 0
    reused: int = 0
    cut: int = 0

    @property
    def useless(self) -> bool:
        """Every row met a broken pass."""
        return bool(self.outcomes) and all(outcome.fault == "engine" for outcome in self.outcomes)


class Produced(msgspec.Struct, frozen=True):
    """Tell a streaming caller its new ids."""

    sequence: int
    ids: tuple[int, ...]


class Ended(msgspec.Struct, frozen=True):
    """Tell a caller the end. The one and only end of a sequence."""

    sequence: int
    ending: Ending


class Refused(msgspec.Struct, frozen=True):
    """Tell a caller that its sequence was never queued."""

    sequence: int
    code: str
    retry_after_ms: float | None = None


Effect = Produced | Ended | Refused


class DraftUse(msgspec.Struct, frozen=True):
    """What drafts of one source have done for one model since the start.

    passes: how many of its passes verified a draft, by the accept length's bucket (draft_len.ACCEPT_LENGTHS).
    untried: drafts that were not verified, because that would have cost more than it saved.
    passes_per_id, fed_per_id: of late, what a drafted sequence takes; plain decoding takes 1 of each.
    """

    model: str
    source: str
    passes: tuple[int, ...]
    untried: int
    passes_per_id: float
    fed_per_id: float


class Load(msgspec.Struct, frozen=True):
    """How busy the scheduler is."""

    queued: int = 0
    running: int = 0
    slots_free: int = 0
    wants_drafts: tuple[str, ...] = ()
    counts: Counts = msgspec.field(default_factory=Counts)
    drafts: tuple[DraftUse, ...] = ()
