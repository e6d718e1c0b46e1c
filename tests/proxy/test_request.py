from __future__ import annotations

import json
import string
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import DoneSegment, Translate, Update
from proxy.core.catalogue import Catalogue
from proxy.core.limits import RequestLimits
from proxy.core.transcript import Transcript
from proxy.request import ValidRequest, from_json, from_message

from .test_catalogue import CATALOGUE

LIMITS = RequestLimits()


def valid(limits: RequestLimits = LIMITS, **fields: Any) -> ValidRequest:
    body = {"text": "Good morning", "source": "en", "target": "de"} | fields
    return from_json(json.dumps(body).encode(), limits, CATALOGUE)


def refusal(body: bytes, limits: RequestLimits = LIMITS) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        from_json(body, limits, CATALOGUE)
    return refused.value


def refused(limits: RequestLimits = LIMITS, /, **fields: Any) -> tuple[str, str]:
    body = {"text": "Good morning", "source": "en", "target": "de"} | fields
    error = refusal(json.dumps(body).encode(), limits)
    return error.code, error.detail


def test_defaults() -> None:
    assert valid() == ValidRequest(
        texts=("Good morning",),
        source="en",
        target="de",
        tier="auto",
        priority="interactive",
        deadline_ms=10_000.0,
        stream=False,
        segments=False,
        session="",
        chars=12,
    )
    assert valid(priority="batch").deadline_ms == 120_000.0
    assert valid(priority="batch", deadline_ms=5).deadline_ms == 5.0


def test_null_means_the_default() -> None:
    assert valid(tier=None, priority=None, deadline_ms=None, stream=None, session=None, segments=None) == valid()


def test_a_list_keeps_its_order() -> None:
    request = valid(text=["one", "two"])
    assert request.texts == ("one", "two")
    assert request.chars == 6


def test_an_accept_header_asks_for_a_stream_too() -> None:
    body = b'{"text": "a", "source": "en", "target": "de"}'
    assert from_json(body, LIMITS, CATALOGUE, stream=True).stream
    assert valid(stream=True).stream


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"text=hello",
        b"\xff\xfe",
        b'{"text": NaN}',
        b'{"text": 1e999}',
        b'{"text": "\x01"}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_refused_with_a_position(body: bytes) -> None:
    error = refusal(body)
    assert error.code == "invalid_json"
    assert "line 1" in error.detail


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": 5}, "text"),
        ({"text": None}, "text"),
        ({"text": {"a": 1}}, "text"),
        ({"text": ["a", 5]}, "text[1]"),
        ({"target": 7}, "target"),
        ({"tier": "turbo"}, "tier"),
        ({"priority": "urgent"}, "priority"),
        ({"deadline_ms": "soon"}, "deadline_ms"),
        ({"deadline_ms": True}, "deadline_ms"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"session": 5}, "session"),
        ({"deadline": 5}, "deadline"),
    ],
)
def test_a_wrong_type_or_unknown_field_is_named(fields: dict[str, Any], named: str) -> None:
    code, detail = refused(**fields)
    assert code == "invalid_request"
    assert named in detail


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"5"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(body).code == "invalid_request"


def test_a_missing_field_is_named() -> None:
    error = refusal(b'{"text": "a"}')
    assert error.code == "invalid_request"
    assert "target" in error.detail


def test_no_source_asks_for_detection_which_is_not_there_yet() -> None:
    for body in (b'{"text": "a", "target": "de"}', b'{"text": "a", "target": "de", "source": "auto"}'):
        error = refusal(body)
        assert error.code == "detection_unavailable"
        assert "for example 'en'" in error.detail


@pytest.mark.parametrize("text", ["", " ", "\n\t", [], ["a", ""], ["a", "  "]])
def test_empty_text(text: object) -> None:
    code, detail = refused(text=text)
    assert code == "empty_text"
    if text not in ([],):
        assert f"text[{len(text) - 1 if isinstance(text, list) else 0}]" in detail


def test_nuls_are_named_by_item_and_position() -> None:
    assert refused(text=["fine", "ab\0c"]) == ("invalid_text", "text[1]: NUL at character 2")


@pytest.mark.parametrize("half", ["\ud800", "\udfff", "\udc00\ud800"])
def test_lone_surrogates_are_named_by_item_and_position(half: str) -> None:
    assert refused(text=["fine", f"abc{half}d"]) == ("invalid_text", "text[1]: lone surrogate at character 3")
    assert refused(text=half) == ("invalid_text", "text[0]: lone surrogate at character 0")


def test_a_whole_surrogate_pair_is_a_character() -> None:
    request = from_json(b'{"text": "a\\ud83d\\ude00", "source": "en", "target": "de"}', LIMITS, CATALOGUE)
    assert request.texts == ("a\U0001f600",)


def test_a_lone_surrogate_elsewhere_is_no_json() -> None:
    assert refused(session="\ud800")[0] == "invalid_json"
    assert refused(**{"\ud800": 1})[0] == "invalid_json"
    assert refusal(b'{"text": "\\ud800", ').code == "invalid_json"


@pytest.mark.parametrize("opening", [b"[", b'{"text":'])
@pytest.mark.parametrize("prefix", [b"", b'{"a": "\\ud800", "b": '])
def test_deep_nesting_is_bounded(opening: bytes, prefix: bytes) -> None:
    assert refusal(prefix + opening * 200_000).code == "invalid_json"


def test_a_huge_integer_is_no_json() -> None:
    body = b'{"text": "\\ud800", "deadline_ms": ' + b"9" * 10_000 + b"}"
    assert refusal(body).code in ("invalid_json", "invalid_text")
    assert refused(deadline_ms=10**400)[0] == "invalid_json"


def test_limits_on_texts() -> None:
    limits = RequestLimits(texts_max=3, text_chars_max=10, total_chars_max=25)
    assert valid(limits, text=["a" * 10, "b" * 10, "c" * 5]).chars == 25
    assert refused(limits, text=["a"] * 4) == ("text_too_long", "text: 4 items, at most 3 in one request")
    assert refused(limits, text=["a", "b" * 11]) == ("text_too_long", "text[1]: 11 characters, at most 10 in one text")
    code, detail = refused(limits, text=["a" * 10] * 3)
    assert (code, detail) == ("text_too_long", "text: 30 characters in all, at most 25 in one request")


def test_a_megabyte_of_one_word_is_too_long() -> None:
    assert refused(text="a" * 1_000_000)[0] == "text_too_long"


@pytest.mark.parametrize("deadline_ms", [0, -1, 0.5, 600_001, 1e300])
def test_deadlines_are_bounded(deadline_ms: float) -> None:
    code, detail = refused(deadline_ms=deadline_ms)
    assert code == "invalid_request"
    assert detail == "deadline_ms: must be 1 to 600000"


@pytest.mark.parametrize("session", ["a b", "é", "x" * 129, "a\nb"])
def test_sessions_are_plain_names(session: str) -> None:
    assert refused(session=session)[0] == "invalid_request"


@pytest.mark.parametrize("code", ["", "e n", "x" * 33, "dé", "xx"])
def test_unknown_languages(code: str) -> None:
    for field in ("source", "target"):
        refusal_code, detail = refused(**{field: code})
        assert refusal_code == "unknown_language"
        assert field in detail


def test_pairs_and_tiers() -> None:
    assert refused(source="de", target="en")[0] == "unsupported_pair"
    assert refused(tier="origin")[0] == "tier_unavailable"
    assert valid(source="EN", target="DE").target == "de"


def test_before_any_edge_was_seen_the_languages_are_not_judged() -> None:
    body = b'{"text": "a", "source": "en", "target": "xx"}'
    assert from_json(body, LIMITS, Catalogue(())).target == "xx"


def test_no_error_repeats_the_text() -> None:
    secret = "swordfish"
    for fields in ({"text": [secret, 5]}, {"text": secret + "\0"}, {"text": secret, "tier": "turbo"}):
        assert secret not in refused(**fields)[1]


def test_a_message_from_the_link_is_checked_the_same_way() -> None:
    message = Translate("id", ("Good morning",), "en", "de", budget_ms=10_000.0)
    assert from_message(message, LIMITS, CATALOGUE) == valid()
    for change, code in (
        ({"texts": ()}, "empty_text"),
        ({"texts": ("a\0",)}, "invalid_text"),
        ({"texts": ("a\ud800",)}, "invalid_text"),
        ({"target": "xx"}, "unknown_language"),
        ({"source": "auto"}, "detection_unavailable"),
        ({"budget_ms": float("nan")}, "invalid_request"),
    ):
        with pytest.raises(InvalidRequest) as error:
            from_message(msgspec.structs.replace(message, **change), LIMITS, CATALOGUE)
        assert error.value.code == code


def test_the_message_to_an_edge_carries_the_attempt() -> None:
    transcript = Transcript()
    transcript.take(Update(0, 0, 0, "segment", "Guten", "", 0, 4, "edge", "m@1"))
    transcript.take(Update(0, 1, 0, "partial", "Mor", " ", 5, 12, "origin", "n@1"))
    message = valid(tier="edge", segments=True, session="s1").message(
        request_id="r",
        tenant="blue",
        tier="origin",
        budget_ms=5.0,
        attempt=2,
        attempts_left=1,
        traceparent="t",
        transcript=transcript,
    )
    assert message == Translate(
        "r",
        ("Good morning",),
        "en",
        "de",
        tier="origin",  # it stands in for the one asked for
        budget_ms=5.0,
        segments=True,
        session="s1",
        tenant="blue",
        attempt=2,
        attempts_left=1,
        traceparent="t",
        done=(DoneSegment(0, 0, 4, "Guten", "edge", "m@1"),),
        models=("m@1", "n@1"),
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(string.ascii_letters), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(["text", "source", "target", "tier", "deadline_ms", "stream", "session", "segments", "x"])


@given(st.binary(max_size=60) | st.dictionaries(FIELDS, JSON, max_size=6).map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_request_or_a_refusal_that_can_be_rendered(body: bytes) -> None:
    try:
        request = from_json(body, LIMITS, CATALOGUE)
    except InvalidRequest as error:
        orjson.dumps(error.detail)
    else:
        assert request.texts
