from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.traffic.windowed import REFRESH_SHARE, WindowedSketch


def sketch(windows: int = 3) -> WindowedSketch:
    return WindowedSketch(window_s=10.0, windows=windows, now=0.0)


def test_what_is_old_is_forgotten_a_window_at_a_time() -> None:
    seen = sketch()
    seen.add(100.0, 0.0)
    seen.add(1.0, 15.0)
    assert (seen.count(29.9), seen.quantile(1.0, 29.9)) == (2, pytest.approx(100.0, rel=0.021))
    assert (seen.count(30.0), seen.quantile(1.0, 30.0)) == (1, pytest.approx(1.0, rel=0.021))
    assert (seen.count(1e6), seen.quantile(0.5, 1e6)) == (0, 0.0)


def test_asking_often_costs_little() -> None:
    """A quantile is made anew when there is something new to tell, not for each question."""
    seen = sketch()
    for _ in range(1000):
        seen.add(1.0, 0.0)
    assert seen.quantile(1.0, 0.0) == pytest.approx(1.0, rel=0.021)
    for _ in range(1000 // REFRESH_SHARE - 1):
        seen.add(50.0, 0.0)
        assert seen.quantile(1.0, 0.0) < 2.0
    seen.add(50.0, 0.0)
    assert seen.quantile(1.0, 0.0) == pytest.approx(50.0, rel=0.021)


@given(
    st.lists(st.tuples(st.floats(0.0, 7.0), st.floats(0.01, 1000.0)), min_size=1, max_size=60),
    st.sampled_from([0.0, 0.5, 0.97, 1.0]),
)
def test_a_quantile_is_of_what_is_recent(steps: list[tuple[float, float]], q: float) -> None:
    seen, now, values = sketch(), 0.0, []
    for elapsed, value in steps:
        now += elapsed
        seen.add(value, now)
        values.append((int(now // 10), value))
    recent = sorted(value for window, value in values if window > int(now // 10) - 3)
    expected = recent[int(q * (len(recent) - 1))]
    assert seen.quantile(q, now) == pytest.approx(expected, rel=0.021)
