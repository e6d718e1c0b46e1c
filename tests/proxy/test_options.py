"""Stability and decoding: every bound, and what can't be asked for together."""

from __future__ import annotations

from typing import Any

import pytest

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Decoding, Stability, Translate
from proxy.core.limits import RequestLimits
from proxy.core.transcript import Transcript
from proxy.request import from_message

from .test_catalogue import CATALOGUE
from .test_request import refused, valid


def test_what_is_asked_for_travels_on() -> None:
    asked = valid(session="s", stability={"bias": 0.3, "mask": 2}, length_penalty=0.8, alignment=True)
    message = asked.message(
        request_id="r",
        tenant="",
        tier=asked.tier,
        budget_ms=1.0,
        attempt=1,
        attempts_left=0,
        traceparent="",
        transcript=Transcript(),
    )
    assert message.stability == Stability(0.3, 2) and message.decoding == Decoding(0, 0.8, 0, True)
    assert valid(beam=8, alternatives=8).decoding == Decoding(8, None, 8)
    assert valid(stability={"mask": 1}).stability == Stability(None, 1)
    again = from_message(message, RequestLimits(), CATALOGUE)
    assert (again.stability, again.decoding) == (message.stability, message.decoding)


@pytest.mark.parametrize(
    "fields",
    [{}, {"stability": {}}, {"stability": None, "beam": None, "alignment": False}, {"alternatives": 0, "beam": 0}],
)
def test_nothing_asked_for_is_nothing(fields: dict[str, Any]) -> None:
    request = valid(**fields)
    assert request.stability is None and request.decoding is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"stability": {"bias": 1.0}, "session": "s"}, "stability.bias"),
        ({"stability": {"bias": -0.1}, "session": "s"}, "stability.bias"),
        ({"stability": {"bias": 0.2}}, "session"),
        ({"stability": {"mask": 65}}, "stability.mask"),
        ({"stability": {"mask": -1}}, "stability.mask"),
        ({"stability": {"strength": 1}}, "strength"),
        ({"stability": 0.5}, "stability"),
        ({"beam": 9}, "beam"),
        ({"beam": -1}, "beam"),
        ({"beam": 1.5}, "beam"),
        ({"alternatives": 9}, "alternatives"),
        ({"alternatives": -1}, "alternatives"),
        ({"alternatives": 2, "beam": 2}, "alternatives"),
        ({"length_penalty": 5.1}, "length_penalty"),
        ({"length_penalty": -1}, "length_penalty"),
        ({"alternatives": 1, "tier": "edge"}, "tier"),
        ({"alignment": True, "tier": "edge"}, "tier"),
        ({"stability": {"bias": 0.2}, "session": "s", "alternatives": 1}, "stability.bias"),
        ({"stability": {"bias": 0.2}, "session": "s", "beam": 2}, "stability.bias"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], named: str) -> None:
    code, detail = refused(**fields)
    assert code == "invalid_request" and named in detail


def test_not_a_number_over_the_link() -> None:
    for fields in (
        {"stability": Stability(float("nan")), "session": "s"},
        {"decoding": Decoding(length_penalty=float("nan"))},
    ):
        with pytest.raises(InvalidRequest):
            from_message(Translate("r", ("hi",), "en", "de", **fields), RequestLimits(), CATALOGUE)  # type: ignore[arg-type]
