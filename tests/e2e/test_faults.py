"""kill -9 and SIGTERM under real requests: promised answers, no hang, clean ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from nearsay import Client
from nearsay.wire.errors import NearsayError, Unavailable
from tests.e2e.stack import Stack, post

pytestmark = pytest.mark.e2e

SENTENCE = "We moved to the new house last week and the children like the garden. "
# Many different ones: equal segments would be translated once.
LONG = " ".join(f"We moved to house number {number} and the children like the garden." for number in range(60))
WITHIN_S = 30.0


def wait_until(check: Any) -> None:
    """Poll with real requests until `check` is true; the polls themselves take the time."""
    end = time.monotonic() + WITHIN_S
    while not check():
        assert time.monotonic() < end, "not within its time"
        threading.Event().wait(0.05)


def test_without_an_origin_the_edge_answers_and_says_so(own_stack: Stack) -> None:
    url = own_stack["proxy"].url
    own_stack["origin"].kill()
    body = {"text": SENTENCE * 3, "source": "en", "target": "pt"}
    wait_until(lambda: post(url, {**body, "tier": "origin"})[0] == 503)
    assert post(url, {**body, "tier": "origin"})[1]["code"] == "origin_unavailable"
    status, answer = post(url, {**body, "tier": "refine"})
    [translation] = answer["translations"]
    assert status == 200 and translation["tier"] == "edge"
    assert translation["degraded"] and translation["degraded_reason"]


def test_an_origin_lost_mid_request_degrades_or_fails_by_name(own_stack: Stack) -> None:
    with Client(own_stack["proxy"].url) as client:
        events = client.stream(LONG, "en", "pt", tier="origin", deadline_ms=60_000)
        next(events)
        own_stack["origin"].kill()
        with pytest.raises(Unavailable) as caught:
            list(events)
    assert caught.value.code in {"origin_unavailable", "link_lost"}


def test_an_edge_lost_mid_request_is_a_retryable_error(own_stack: Stack) -> None:
    with Client(own_stack["proxy"].url) as client:
        events = client.stream(LONG, "en", "pt", tier="origin", deadline_ms=60_000)
        next(events)
        own_stack["edge"].kill()
        with pytest.raises(NearsayError) as caught:
            list(events)
    assert caught.value.retryable, caught.value.code
    wait_until(lambda: post(own_stack["proxy"].url, {"text": "Hi.", "source": "en", "target": "pt"})[0] == 503)
    assert (
        post(own_stack["proxy"].url, {"text": "Hi.", "source": "en", "target": "pt"})[1]["code"] == "edge_unavailable"
    )


def test_sigterm_lets_requests_in_flight_finish(own_stack: Stack) -> None:
    results: list[tuple[int, dict[str, Any]]] = []
    url = own_stack["proxy"].url
    body = {"text": LONG, "source": "en", "target": "pt", "tier": "origin", "deadline_ms": 60_000}
    request = threading.Thread(target=lambda: results.append(post(url, body)))
    request.start()
    wait_until(lambda: own_stack["origin"].admin("/stats")["gauges"].get("running", 0) > 0)
    assert own_stack["proxy"].terminate() == 0
    request.join(WITHIN_S)
    assert results and results[0][0] == 200
    assert own_stack["edge"].terminate() == 0
    assert own_stack["origin"].terminate() == 0
