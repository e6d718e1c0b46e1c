"""The encode window: never when idle, never longer than it says, only for company that is expected."""

from __future__ import annotations

from origin.core.encode_window import EncodeWindow


def busy(gap_s: float) -> EncodeWindow:
    window = EncodeWindow(0.002)
    for number in range(40):
        window.arrive(number * gap_s)
    return window


def test_an_idle_engine_takes_in_at_once() -> None:
    assert not busy(0.0001).hold(1.0, 0.0)


def test_long_steps_never_wait() -> None:
    assert not busy(0.0001).hold(1.0, 0.0021)


def test_nobody_waits_for_company_that_is_not_expected() -> None:
    assert not busy(0.05).hold(1.0, 0.0005)
    assert not EncodeWindow(0.002).hold(1.0, 0.0005)


def test_a_wait_ends_before_the_window_closes() -> None:
    window = busy(0.0001)
    held = [now for now in (1.0, 1.0005, 1.001, 1.0015) if window.hold(now, 0.0006)]
    assert held == [1.0, 1.0005, 1.001]
    assert window.hold(1.002, 0.0006)  # for those who come next


def test_a_window_of_zero_is_off() -> None:
    window = EncodeWindow(0.0)
    for number in range(40):
        window.arrive(number * 1e-5)
    assert not window.hold(1.0, 1e-4)
