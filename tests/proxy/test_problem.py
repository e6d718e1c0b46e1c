from __future__ import annotations

import orjson

from nearsay.wire.errors import InvalidRequest, Overloaded
from proxy.problem import problem_bytes, problem_headers


def test_a_problem_has_the_members_of_rfc_9457_and_a_code() -> None:
    error = InvalidRequest("text[0]: nothing to translate", code="empty_text")
    assert orjson.loads(problem_bytes(error, "r1")) == {
        "type": "urn:nearsay:problem:empty_text",
        "title": "There is no text to translate",
        "status": 400,
        "code": "empty_text",
        "detail": "text[0]: nothing to translate",
        "request_id": "r1",
    }


def test_retry_after_is_whole_seconds_and_at_least_one() -> None:
    for retry_after_ms, header in ((1.0, "1"), (1000.0, "1"), (1500.0, "2")):
        error = Overloaded(retry_after_ms=retry_after_ms)
        assert problem_headers(error, "r")["Retry-After"] == header
        assert orjson.loads(problem_bytes(error, "r"))["retry_after_ms"] == retry_after_ms
    assert "Retry-After" not in problem_headers(Overloaded(), "r")


def test_a_key_is_asked_for_by_its_scheme() -> None:
    headers = problem_headers(InvalidRequest(code="unauthorised"), "r")
    assert headers["WWW-Authenticate"] == "Bearer"
    assert headers["Content-Type"] == "application/problem+json"
