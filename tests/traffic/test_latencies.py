from __future__ import annotations

import pytest

from nearsay.traffic.latencies import SAMPLES_MIN, WINDOW_S, WINDOWS, Latencies


def test_nothing_is_usual_before_enough_is_known() -> None:
    seen = Latencies()
    for _ in range(SAMPLES_MIN - 1):
        seen.observe("short", 0.01, 0.0)
    assert seen.quantile("short", 0.5, 0.0) is None
    seen.observe("short", 0.01, 0.0)
    assert seen.quantile("short", 0.5, 0.0) == pytest.approx(0.01, rel=0.02)
    assert seen.quantile("long", 0.5, 0.0) is None
    assert seen.quantile("short", 0.5, WINDOW_S * WINDOWS) is None  # and not after it is long past


def test_kinds_are_bounded_and_the_one_longest_unheard_of_goes() -> None:
    seen = Latencies(keys_max=3, samples_min=1)
    for kind in ("a", "b", "c", "a", "d"):
        seen.observe(kind, 0.01, 0.0)
    assert len(seen) == 3
    assert [seen.quantile(kind, 0.5, 0.0) is not None for kind in "abcd"] == [True, False, True, True]
