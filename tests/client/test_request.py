from __future__ import annotations

import msgspec
import pytest

from nearsay.client.request import DEADLINES_MS, Options, Request, make_request
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Decoding, Stability


def made(text: object = "hi", source: object = "en", target: object = "de", **options: object) -> Request:
    return make_request(
        text,  # type: ignore[arg-type]
        source,  # type: ignore[arg-type]
        target,  # type: ignore[arg-type]
        Options(**options),  # type: ignore[arg-type]
        stream=False,
        request_id="r1",
        now=100.0,
    )


def test_message_and_body_say_the_same() -> None:
    request = made(["a", "b"], tier="refine", priority="batch", session="s", segments=True, deadline_ms=2_000)
    message, body = request.message(101.0, attempt=2), msgspec.json.decode(request.body(101.0))
    assert body["text"] == list(message.texts) == ["a", "b"]
    assert body["deadline_ms"] == message.budget_ms == pytest.approx(1_000)
    for field in ("source", "target", "tier", "priority", "session", "segments", "stream"):
        assert body[field] == getattr(message, field)
    assert (message.request_id, message.attempt) == ("r1", 2)


def test_options_of_decoding_are_sent_only_where_they_say_something() -> None:
    plain = msgspec.json.decode(made().body(101.0))
    assert not {"stability", "beam", "alternatives"} & plain.keys()
    asked = made(stability=Stability(0.2, 1), decoding=Decoding(4, 0.5, 2, True), session="s")
    body, message = msgspec.json.decode(asked.body(101.0)), asked.message(101.0, attempt=1)
    assert body["stability"] == {"bias": 0.2, "mask": 1} and message.stability == Stability(0.2, 1)
    assert [body[field] for field in ("beam", "length_penalty", "alternatives", "alignment")] == [4, 0.5, 2, True]
    assert message.decoding == Decoding(4, 0.5, 2, True)


def test_one_text_stays_a_string() -> None:
    assert msgspec.json.decode(made("a").body(100.0))["text"] == "a"
    assert msgspec.json.decode(made(["a"]).body(100.0))["text"] == ["a"]


@pytest.mark.parametrize("priority", ["interactive", "batch"])
def test_default_deadline_is_the_priority_s(priority: str) -> None:
    request = made(priority=priority)
    assert request.budget_ms(100.0) == pytest.approx(DEADLINES_MS[priority])  # type: ignore[index]


def test_budget_never_reaches_zero() -> None:
    assert made(deadline_ms=10).budget_ms(500.0) == 1.0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"tier": "best"}, "invalid_request"),
        ({"priority": "urgent"}, "invalid_request"),
        ({"deadline_ms": 0}, "invalid_request"),
        ({"deadline_ms": float("nan")}, "invalid_request"),
        ({"deadline_ms": float("inf")}, "invalid_request"),
        ({"text": []}, "empty_text"),
        ({"text": "a\ud800"}, "invalid_text"),
        ({"text": ["a", 3]}, "invalid_text"),
        ({"target": None}, "invalid_request"),
        ({"session": "\udfff"}, "invalid_request"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], code: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        made(**arguments)
    assert error.value.code == code
