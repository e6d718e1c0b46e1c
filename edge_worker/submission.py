"""Between a segment and its ids at an origin: the `Submit`, text that grows with its ids, the text at the end."""

from __future__ import annotations

from collections.abc import Sequence

from edge_worker.core.join import Piece
from edge_worker.models import OriginModel
from edge_worker.origin_client import OnIds
from edge_worker.parts import Show
from nearsay.wire.errors import InternalError
from nearsay.wire.messages import Finished, Submit, Translate, pack_ids, unpack_ids


def submission(
    request: Translate, model: OriginModel, ids: Sequence[int], draft: Sequence[int], target_tokens_max: int
) -> Submit:
    """What an origin is asked for one segment: source `ids` without eos, `draft` without eos (empty = none)."""
    return Submit(
        request_id=request.request_id,
        model=model.info.name,
        src_vocab_hash=model.info.src_vocab_hash,
        trg_vocab_hash=model.info.trg_vocab_hash,
        src_ids=pack_ids([*ids, model.source.eos_id]),
        prefix_ids=model.info.prefix_ids,
        draft_ids=pack_ids(draft),
        target_tokens_max=target_tokens_max,
        priority=request.priority,
        tenant=request.tenant,
        session=request.session,
        seq=request.seq,
        attempt=request.attempt,
        traceparent=request.traceparent,
    )


def growing(model: OriginModel, show: Show) -> OnIds:
    """Shows ids as text that only grows; what could still change (half a character) is held back."""
    shown = ""

    def grow(ids: Sequence[int]) -> None:
        nonlocal shown
        text = model.target.decode(ids).rstrip("\ufffd")
        if len(text) > len(shown) and text.startswith(shown):
            shown = text
            show(Piece(text, "partial", "origin", model.info.name))

    return grow


def decoded(finished: Finished, model: OriginModel) -> str:
    """The text of a sequence that came to its own end. Raises InternalError for anything else."""
    if finished.finish_reason != "stop":
        raise InternalError(f"the origin ended a sequence as {finished.finish_reason!r}")
    try:
        return model.target.decode(unpack_ids(finished.ids))
    except ValueError as error:
        raise InternalError("the origin sent ids outside its vocabulary") from error
