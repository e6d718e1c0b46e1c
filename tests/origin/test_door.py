"""The door: every way in which a Submit can be wrong, and what becomes of its draft."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import pack_ids
from origin.core.past_answers import PastAnswers
from origin.core.sessions import SessionLimits, Sessions
from origin.door import Door, past_key, question_of
from tests.origin.build import EOS, model, submit


class Opened:
    """A door over two models, and why drafts were not taken."""

    def __init__(self) -> None:
        self.drafts: list[str] = []
        self.door = Door(budget_ms_max=60_000.0, count_draft=self.drafts.append)
        self.door.open(
            [
                model(source_tokens_max=8, target_tokens_max=6, prefix_ids=(), slots=8),
                model("b", beam=4, slots=8, prefix_ids=(9,)),
            ]
        )

    def code(self, **fields: object) -> str:
        with pytest.raises(NearsayError) as caught:
            self.door.admit(submit(**fields), 1, 0.0)  # type: ignore[arg-type]
        return caught.value.code


def test_a_good_request_becomes_a_spec() -> None:
    door = Opened().door
    spec = door.admit(
        submit((5, 6, EOS), draft_ids=pack_ids([7, 8]), budget_ms=500.0, stream=True, tenant="t"), 3, 10.0
    )
    assert (spec.id, spec.model, spec.source, spec.draft) == (3, "m@1", (5, 6, EOS), (7, 8))
    assert (spec.arrived, spec.deadline, spec.width, spec.stream) == (10.0, 10.5, 1, True)
    assert spec.tenant == "t"
    assert spec.target_tokens_max == 6


def test_defaults_of_the_model_and_bounds_of_the_origin() -> None:
    door = Opened().door
    spec = door.admit(submit(name="b", prefix_ids=pack_ids([9]), budget_ms=float("inf")), 1, 0.0)
    assert (spec.width, spec.deadline) == (4, 60.0)
    assert door.admit(submit(name="b", prefix_ids=pack_ids([9]), beam=1, target_tokens_max=3), 1, 0.0).width == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "nobody@1"}, "unknown_model"),
        ({"src_vocab_hash": "other"}, "model_mismatch"),
        ({"trg_vocab_hash": "other"}, "model_mismatch"),
        ({"prefix_ids": pack_ids([3])}, "model_mismatch"),
        ({"prefix_ids": b"abc"}, "invalid_request"),
        ({"src_ids": b""}, "invalid_request"),
        ({"src_ids": b"abcde"}, "invalid_request"),
        ({"source": (5, 6)}, "invalid_request"),
        ({"source": (100, EOS)}, "invalid_request"),
        ({"source": (5,) * 8 + (EOS,)}, "source_too_long"),
        ({"src_ids": bytes(4 * 10_000_000)}, "source_too_long"),
        ({"beam": -1}, "invalid_request"),
        ({"beam": 9}, "invalid_request"),
        ({"target_tokens_max": 0}, "invalid_request"),
        ({"n_best": 0}, "invalid_request"),
        ({"n_best": 9}, "invalid_request"),
        ({"n_best": 3, "beam": 2}, "invalid_request"),
        ({"session": "s" * 257}, "invalid_request"),
        ({"bias": 1.0}, "invalid_request"),
        ({"bias": -0.1}, "invalid_request"),
        ({"bias": float("nan")}, "invalid_request"),
        ({"bias": 0.1, "beam": 2}, "invalid_request"),
        ({"bias": 0.1, "n_best": 2}, "invalid_request"),
        ({"length_penalty": -0.1}, "invalid_request"),
        ({"length_penalty": float("nan")}, "invalid_request"),
        ({"budget_ms": 0.0}, "deadline_exceeded"),
        ({"budget_ms": float("nan")}, "deadline_exceeded"),
    ],
)
def test_what_is_refused_and_how(fields: dict[str, object], code: str) -> None:
    assert Opened().code(**fields) == code


def test_a_source_of_exactly_the_limit_passes() -> None:
    assert len(Opened().door.admit(submit((5,) * 7 + (EOS,)), 1, 0.0).source) == 8


@pytest.mark.parametrize(
    ("fields", "draft", "why"),
    [
        ({"draft_ids": b""}, (), []),
        ({"draft_ids": pack_ids([7]), "draft_vocab_hash": "trg-m"}, (7,), []),
        ({"draft_ids": pack_ids([7]), "draft_vocab_hash": "student"}, (), ["vocabulary"]),
        ({"draft_ids": pack_ids([100])}, (), ["outside_vocabulary"]),
        ({"draft_ids": b"abc"}, (), ["malformed"]),
        ({"draft_ids": pack_ids([7]), "beam": 2}, (), ["beam"]),
        ({"draft_ids": pack_ids(range(1, 20))}, (1, 2, 3, 4, 5, 6), ["cut"]),
        ({"draft_ids": pack_ids([7, EOS, 8])}, (7,), []),
    ],
)
def test_a_bad_draft_is_dropped_or_cut_and_counted(
    fields: dict[str, object], draft: tuple[int, ...], why: list[str]
) -> None:
    opened = Opened()
    assert opened.door.admit(submit(**fields), 1, 0.0).draft == draft  # type: ignore[arg-type]
    assert opened.drafts == why


def test_several_best_take_a_beam_that_holds_them() -> None:
    door = Opened().door
    assert door.admit(submit(n_best=3), 1, 0.0).width == 3
    assert door.admit(submit(n_best=3, beam=5), 1, 0.0).width == 5
    spec = door.admit(submit(name="b", prefix_ids=pack_ids([9]), n_best=2, want_alignment=True), 1, 0.0)
    assert (spec.width, spec.n_best, spec.want_alignment) == (4, 2, True)


def test_a_sessions_earlier_answer_drafts_alone_or_with_the_callers() -> None:
    sessions = Sessions(SessionLimits())
    door = Door(budget_ms_max=60_000.0, count_draft=lambda _: None, sessions=sessions)
    door.open([model(target_tokens_max=6, slots=8)])
    first = submit((5, 6, EOS), session="s", tenant="t", draft_ids=pack_ids([1, 2, 9]))
    spec = door.admit(first, 1, 0.0)
    assert (spec.draft, spec.draft_more, spec.draft_source) == ((1, 2, 9), (), "edge")
    sessions.remember(question_of(first, spec), tuple(range(1, 8)), 0.0, spec.caller_draft)
    grown = (5, 6, 7, EOS)
    spec = door.admit(submit(grown, session="s", tenant="t"), 2, 1.0)
    assert (spec.draft, spec.draft_source) == ((1, 2, 3, 4, 5, 6), "session")  # as long as the target may be
    spec = door.admit(submit(grown, session="s", tenant="t", draft_ids=pack_ids([8, 2, 9])), 3, 1.0)
    assert (spec.draft, spec.draft_source) == ((8, 2, 3, 4, 5, 6), "merged")  # its 8 for 1 since then, our 3 for 9
    assert spec.draft_more == (EOS, 8, 2, 9, EOS, 1, 2, 3, 4, 5, 6)
    none: list[dict[str, object]] = [
        {"session": "s", "tenant": "u"},
        {"session": "x", "tenant": "t"},
        {"tenant": "t"},
        {"session": "s", "tenant": "t", "beam": 2},
    ]
    assert [door.admit(submit(grown, **fields), 4, 1.0).draft for fields in none] == [()] * 4


def test_a_bias_leans_on_the_sessions_answer_to_the_most_similar_source() -> None:
    sessions = Sessions(SessionLimits())
    door = Door(budget_ms_max=60_000.0, count_draft=lambda _: None, sessions=sessions)
    door.open([model(slots=8, beam=4)])
    first = submit((5, 6, EOS), session="s", bias=0.3)
    spec = door.admit(first, 1, 0.0)
    assert (spec.bias, spec.toward, spec.width) == (0.0, (), 1), "nothing to lean on, but no beam either"
    sessions.remember(question_of(first, spec), (7, 8), 0.0)
    grown = door.admit(submit((5, 6, 9, EOS), session="s", bias=0.3), 2, 0.0)
    assert (grown.bias, grown.toward, grown.draft) == (0.3, (7, 8), (7, 8))
    for other in ({"session": "t", "bias": 0.3}, {"session": "s"}, {"bias": 0.3}):
        spec = door.admit(submit((5, 6, 9, EOS), **other), 3, 0.0)
        assert (spec.bias, spec.toward) == (0.0, ())


def test_what_was_decoded_in_another_way_does_not_answer() -> None:
    sessions = Sessions(SessionLimits())
    door = Door(budget_ms_max=60_000.0, count_draft=lambda _: None, sessions=sessions)
    door.open([model(slots=8)])
    asked = submit((5, 6, EOS), session="s", bias=0.3)
    sessions.remember(question_of(asked, door.admit(asked, 1, 0.0)), (7, 8), 0.0)
    for fields, answer in (({"bias": 0.3}, (7, 8)), ({}, None), ({"beam": 2}, None), ({"length_penalty": 0.5}, None)):
        again = submit((5, 6, EOS), session="s", **fields)
        assert sessions.answer(question_of(again, door.admit(again, 2, 0.0)), 0.0) == answer


def test_the_answer_of_an_older_version_drafts_the_same_source_of_the_same_tenant() -> None:
    past = PastAnswers(1 << 20)
    door = Door(budget_ms_max=60_000.0, count_draft=lambda _: None, past=past)
    old, new = model(slots=8), model(slots=8)
    new = msgspec.structs.replace(new, info=msgspec.structs.replace(new.info, version="2"))
    door.open([old])
    asked = submit((5, 6, EOS), tenant="t")
    past.remember(past_key(asked, door.admit(asked, 1, 0.0)), (7, 8))
    door.open([new])  # as a swap does
    spec = door.admit(submit((5, 6, EOS), tenant="t", model="m@2", draft_ids=pack_ids([9])), 2, 0.0)
    assert (spec.draft, spec.draft_more, spec.draft_source) == ((7, 8), (EOS, 9), "past")
    others = [{"tenant": "u"}, {"source": (5, EOS)}, {"tenant": "t", "beam": 2}]
    for fields in others:
        source = fields.pop("source", (5, 6, EOS))
        assert door.admit(submit(source, model="m@2", **fields), 3, 0.0).draft == ()  # type: ignore[arg-type]


@given(src=st.binary(max_size=40), draft=st.binary(max_size=60), beam=st.integers(), limit=st.integers())
def test_anything_is_admitted_whole_or_refused_by_code(src: bytes, draft: bytes, beam: int, limit: int) -> None:
    opened = Opened()
    try:
        spec = opened.door.admit(submit(src_ids=src, draft_ids=draft, beam=beam, target_tokens_max=limit), 1, 0.0)
    except NearsayError as error:
        assert error.code in ("invalid_request", "source_too_long")
    else:
        assert 1 <= len(spec.source) <= 8 and spec.source[-1] == EOS and max(spec.source) < 100
        assert (
            len(spec.draft) <= spec.target_tokens_max <= 6
            and spec.draft_more == ()
            and all(i < 100 for i in spec.draft)
        )
        assert 1 <= spec.width <= 8
