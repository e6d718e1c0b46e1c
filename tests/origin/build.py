"""Small builders for the origin's tests."""

from __future__ import annotations

from nearsay.wire.messages import ModelInfo, Priority, Submit, pack_ids
from origin.core.model import ServedModel
from origin.core.plan import Effect, Ended, Outcome, Plan, Result
from origin.core.scheduler import Limits, Scheduler
from origin.core.sequence import Spec

EOS = 0


def model(name: str = "m", *, slots: int = 4, beam: int = 1, **fields: object) -> ServedModel:
    info = ModelInfo(name, "1", "en", "de", "origin", "src-" + name, "trg-" + name)
    fields = {"src_vocab_size": 100, "trg_vocab_size": 100, "beam_max": min(slots, 8), **fields}
    return ServedModel(info=info, slots=slots, beam=beam, **fields)  # type: ignore[arg-type]


def scheduler(*models: ServedModel, **limits: object) -> Scheduler:
    return Scheduler(models or (model(),), Limits(**limits))  # type: ignore[arg-type]


def spec(
    id: int,
    *,
    model: str = "m@1",
    source: tuple[int, ...] = (5, 6, EOS),
    deadline: float = 1e9,
    arrived: float = 0.0,
    priority: Priority = "interactive",
    width: int = 1,
    draft: tuple[int, ...] = (),
    stream: bool = False,
    target_tokens_max: int = 256,
    tenant: str = "",
) -> Spec:
    return Spec(
        id=id,
        model=model,
        source=source,
        deadline=deadline,
        arrived=arrived,
        priority=priority,
        width=width,
        draft=draft,
        stream=stream,
        target_tokens_max=target_tokens_max,
        tenant=tenant,
    )


def submit(source: tuple[int, ...] = (5, 6, EOS), name: str = "m", **fields: object) -> Submit:
    fields = {
        "request_id": "r",
        "model": name + "@1",
        "src_vocab_hash": "src-" + name,
        "trg_vocab_hash": "trg-" + name,
        "src_ids": pack_ids(source),
        **fields,
    }
    return Submit(**fields)  # type: ignore[arg-type]


def admitted(plan: Plan) -> list[int]:
    """Ids of the sequences that a plan takes in, in order."""
    return [new.sequence for batch in plan.batches for new in batch.encode]


def stepped(plan: Plan) -> list[int]:
    """Ids of the sequences that a plan takes on."""
    return [row.sequence for batch in plan.batches for row in batch.rows]


def outcome_of_all(plan: Plan, *ids: int, finish: str | None = None) -> Result:
    """Every row of the plan comes to the same."""
    return Result(tuple(Outcome(sequence, ids, finish) for sequence in stepped(plan)))  # type: ignore[arg-type]


def endings(effects: object) -> dict[int, str]:
    """sequence -> reason, of the Ended effects."""
    return {e.sequence: e.ending.reason for e in effects if isinstance(e, Ended)}  # type: ignore[attr-defined]


__all__ = ["EOS", "Effect", "admitted", "endings", "model", "outcome_of_all", "scheduler", "spec", "stepped", "submit"]
