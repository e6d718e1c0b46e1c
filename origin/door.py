"""Turns a `Submit` into a `Spec`, or says what is wrong with it. Nothing behind this door checks again.

All drafts come through here: the caller's, those of its session, and a past answer of another model version. A draft is
only a hint, so a bad one is dropped or cut, and counted, never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, NearsayError, Unavailable
from nearsay.wire.messages import Submit, unpack_ids
from origin.core.drafts import Earlier, in_order
from origin.core.model import ServedModel
from origin.core.past_answers import PastAnswers, PastKey
from origin.core.sequence import DraftSource, Spec
from origin.core.sessions import Question, Sessions, Way, model_id

SESSION_NAME_MAX = 256  # characters
LENGTH_PENALTY_MAX = 5.0


class Door:
    """Checks against the open models. `count_draft` is told why a draft was not taken as it came.

    `sessions` and `past` have drafts of their own; without them all drafts are the callers'.
    """

    def __init__(
        self,
        *,
        budget_ms_max: float,
        count_draft: Callable[[str], None],
        sessions: Sessions | None = None,
        past: PastAnswers | None = None,
    ) -> None:
        self._models: dict[str, ServedModel] = {}
        self._left_out: frozenset[str] = frozenset()
        self._budget_ms_max = budget_ms_max
        self._count_draft = count_draft
        self._sessions = sessions
        self._past = past

    def open(self, models: Iterable[ServedModel], left_out: Iterable[str] = ()) -> None:
        """Admit requests for these models, which are loaded now. `left_out`: those that are there, and are not."""
        self._models = {model.name: model for model in models}
        self._left_out = frozenset(left_out)

    def admit(self, submit: Submit, sequence_id: int, now: float) -> Spec:
        """The valid form of `submit`. Raises InvalidRequest, DeadlineExceeded, Unavailable (model_not_loaded)."""
        model = self._model(submit)
        if not submit.budget_ms > 0:  # NaN too
            raise DeadlineExceeded("no time left on arrival")
        if submit.target_tokens_max < 1:
            raise InvalidRequest(f"target_tokens_max {submit.target_tokens_max} is not positive")
        if len(submit.session) > SESSION_NAME_MAX:
            raise InvalidRequest(f"a session's name has {SESSION_NAME_MAX} characters at most")
        target_tokens_max = min(submit.target_tokens_max, model.target_tokens_max)
        width = _width(submit, model)
        spec = Spec(
            id=sequence_id,
            model=submit.model,
            source=self._source(submit, model),
            caller_draft=self._caller_draft(submit, model, width, target_tokens_max),
            arrived=now,
            deadline=now + min(submit.budget_ms, self._budget_ms_max) / 1e3,
            target_tokens_max=target_tokens_max,
            width=width,
            priority=submit.priority,
            stream=submit.stream,
            want_log_prob=submit.want_log_prob,
            tenant=submit.tenant,
            want_alignment=submit.want_alignment,
            n_best=submit.n_best,
            bias=submit.bias,
            length_penalty=submit.length_penalty,
        )
        return self._drafted(submit, model, spec, now)

    def _model(self, submit: Submit) -> ServedModel:
        model = self._models.get(submit.model)
        if model is None:
            raise self._unknown(submit.model)
        told = (submit.src_vocab_hash, submit.trg_vocab_hash, tuple(_ids(submit.prefix_ids, "prefix")))
        if told != (model.info.src_vocab_hash, model.info.trg_vocab_hash, model.prefix_ids):
            raise InvalidRequest(f"{submit.model} has other vocabularies or prefix ids", code="model_mismatch")
        return model

    def _unknown(self, name: str) -> NearsayError:
        if name in self._left_out:
            return Unavailable(f"{name} could not be loaded here", code="model_not_loaded")
        others = [other for other in self._models if other.rpartition("@")[0] == name.rpartition("@")[0]]
        return InvalidRequest(f"{name}; here is {', '.join(others)}" if others else name, code="unknown_model")

    @staticmethod
    def _source(submit: Submit, model: ServedModel) -> tuple[int, ...]:
        count = len(submit.src_ids) // 4
        if count > model.source_tokens_max:
            raise InvalidRequest(f"{count} source ids, {model.source_tokens_max} at most", code="source_too_long")
        ids = tuple(_ids(submit.src_ids, "source"))
        if not ids or ids[-1] != model.eos_id:
            raise InvalidRequest("the source does not end with eos")
        if max(ids) >= model.src_vocab_size:
            raise InvalidRequest("a source id lies outside the vocabulary")
        return ids

    def _drafted(self, submit: Submit, model: ServedModel, spec: Spec, now: float) -> Spec:
        """With all the drafts that there are, and with the earlier answer that a bias is for."""
        if spec.width > 1:
            return spec
        caller, earlier = spec.caller_draft, self._earlier(submit, spec, now)
        past = self._past.find(past_key(submit, spec)) if self._past is not None else ()
        source: DraftSource = "past" if past else "session" if not caller else "merged" if earlier else "edge"
        drafts = [ids[: spec.target_tokens_max] for ids in in_order(caller, earlier, past)]
        leans = spec.bias > 0.0 and bool(earlier)
        return msgspec.structs.replace(
            spec,
            draft=drafts[0] if drafts else (),
            draft_more=tuple([token for ids in drafts[1:] for token in (model.eos_id, *ids)]),
            draft_source=source,
            toward=earlier[0].ids if leans else (),
            bias=spec.bias if leans else 0.0,
        )

    def _earlier(self, submit: Submit, spec: Spec, now: float) -> tuple[Earlier, ...]:
        if self._sessions is None or not submit.session:
            return ()
        return self._sessions.earlier(question_of(submit, spec), now)

    def _caller_draft(self, submit: Submit, model: ServedModel, width: int, target_tokens_max: int) -> tuple[int, ...]:
        if not submit.draft_ids:
            return ()
        if submit.draft_vocab_hash not in ("", model.info.trg_vocab_hash):
            return self._ignore("vocabulary")
        if width > 1:
            return self._ignore("beam")
        if len(submit.draft_ids) % 4:
            return self._ignore("malformed")
        cut = submit.draft_ids[: 4 * target_tokens_max]
        if len(cut) < len(submit.draft_ids):
            self._count_draft("cut")
        ids = tuple(unpack_ids(cut))
        if max(ids) >= model.trg_vocab_size:
            return self._ignore("outside_vocabulary")
        return ids[: ids.index(model.eos_id)] if model.eos_id in ids else ids

    def _ignore(self, why: str) -> tuple[int, ...]:
        self._count_draft(why)
        return ()


def _width(submit: Submit, model: ServedModel) -> int:
    """Rows of the beam. Raises InvalidRequest for what no beam can do."""
    if not 0 <= submit.beam <= model.beam_max:
        raise InvalidRequest(f"beam {submit.beam} is not in 0..{model.beam_max}")
    if not 1 <= submit.n_best <= (submit.beam or model.beam_max):
        raise InvalidRequest(f"n_best {submit.n_best} is not in 1..beam")
    if not 0.0 <= submit.length_penalty <= LENGTH_PENALTY_MAX:
        raise InvalidRequest(f"length_penalty {submit.length_penalty} is not in 0..{LENGTH_PENALTY_MAX:g}")
    if not 0.0 <= submit.bias < 1.0:
        raise InvalidRequest(f"bias {submit.bias} is not in [0, 1)")
    if submit.bias and max(submit.beam, submit.n_best) > 1:
        raise InvalidRequest("a bias needs a beam of 1")
    return 1 if submit.bias else submit.beam or max(model.beam, submit.n_best)


def question_of(submit: Submit, spec: Spec) -> Question:
    """What a session knows a segment by."""
    asked = (submit.bias, submit.length_penalty)
    way = Way(spec.model, submit.trg_vocab_hash, spec.width, spec.target_tokens_max, *asked)
    return Question(submit.tenant, submit.session, submit.seq, way, spec.source)


def past_key(submit: Submit, spec: Spec) -> PastKey:
    """What a past answer is known by, whatever the model's version."""
    return PastKey(submit.tenant, model_id(spec.model), submit.trg_vocab_hash, spec.source)


def _ids(packed: bytes, what: str) -> Sequence[int]:
    try:
        return unpack_ids(packed)
    except ValueError:
        raise InvalidRequest(f"the {what} ids are not packed u32") from None
