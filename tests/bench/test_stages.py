from __future__ import annotations

import pytest

from bench.stages import Timed, _measured, _notes


def timed(unaccounted_ms: float, decode_ms: float = 8.0) -> Timed:
    return Timed(10.0, {"decode": decode_ms, "unaccounted": unaccounted_ms})


def test_half_a_millisecond_or_a_twentieth_is_allowed() -> None:
    assert timed(0.25).over_allowed == pytest.approx(0.5)
    assert timed(1.0, decode_ms=19.0).over_allowed == pytest.approx(1.0)
    assert timed(2.0, decode_ms=18.0).over_allowed == pytest.approx(2.0)
    assert timed(-0.5).over_allowed == pytest.approx(1.0)  # stages that sum to too much explain nothing either


def test_one_request_in_twenty_may_do_worse() -> None:
    good, bad = [timed(0.1)] * 95, [timed(5.0)] * 5
    assert _measured("edge", good + bad).passes
    assert not _measured("edge", good + bad * 2).passes
    assert _notes("edge", good + bad)["edge_unaccounted_p95_ms"] == pytest.approx(0.1)
