"""Between a segment and its ids at an origin: the `Submit`, text that grows with its ids, the text at the end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edge_worker.core.join import Piece
from edge_worker.core.segmenter import Segment
from edge_worker.core.word_spans import word_pairs
from edge_worker.models import OriginModel
from edge_worker.origin_client import OnIds
from edge_worker.parts import Show
from nearsay.wire.errors import InternalError
from nearsay.wire.messages import Decoding, Finished, Submit, Translate, pack_ids, unpack_ids

N_BEST_MAX = 8  # the widest beam there is


def submission(
    request: Translate,
    model: OriginModel,
    ids: Sequence[int],
    draft: Sequence[int],
    *,
    target_tokens_max: int,
    bias: float = 0.0,
) -> Submit:
    """What an origin is asked for one segment: source `ids` without eos, `draft` without eos (empty = none)."""
    decoding = request.decoding or Decoding()
    return Submit(
        request_id=request.request_id,
        model=model.info.name,
        src_vocab_hash=model.info.src_vocab_hash,
        trg_vocab_hash=model.info.trg_vocab_hash,
        src_ids=pack_ids([*ids, model.source.eos_id]),
        prefix_ids=model.info.prefix_ids,
        draft_ids=pack_ids(draft),
        target_tokens_max=target_tokens_max,
        beam=decoding.beam,
        n_best=min(decoding.alternatives + 1, N_BEST_MAX),
        want_alignment=decoding.alignment,
        length_penalty=1.0 if decoding.length_penalty is None else decoding.length_penalty,
        bias=bias,
        priority=request.priority,
        tenant=request.tenant,
        session=request.session,
        seq=request.seq,
        attempt=request.attempt,
        traceparent=request.traceparent,
    )


def equal(submit: Submit) -> Submit:
    """The same for all that get the same answer: a draft changes no id, and a session's state is its own."""
    return msgspec.structs.replace(submit, request_id="", draft_ids=b"", seq=0, attempt=1, traceparent="")


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


def answered(finished: Finished, model: OriginModel, segment: Segment, ids: Sequence[int]) -> Piece:
    """A segment's final state. `ids`: of its source. Raises InternalError for anything but a proper end."""
    if finished.finish_reason != "stop":
        raise InternalError(f"the origin ended a sequence as {finished.finish_reason!r}")
    try:
        said = unpack_ids(finished.ids)
        text = model.target.decode(said)
        others = dict.fromkeys(model.target.decode(unpack_ids(packed)) for packed in finished.n_best)
        pieces = model.target.pieces(said) if finished.alignment else ()
    except ValueError as error:
        raise InternalError("the origin sent ids outside its vocabulary") from error
    return Piece(
        text,
        "segment",
        "origin",
        finished.model,
        bias=finished.bias,
        alternatives=tuple(other for other in others if other != text),
        alignment=word_pairs(segment.text, model.source.pieces(ids), text, pieces, finished.alignment),
    )
