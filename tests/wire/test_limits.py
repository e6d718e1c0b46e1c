from __future__ import annotations

import pytest

from nearsay.wire.limits import (
    FRAGMENT_BYTES,
    ITEM_OVERHEAD_BYTES,
    PACKET_BYTES,
    PACKET_BYTES_MAX,
    PACKET_FRAMES_MAX,
    PACKET_PIECES,
    WINDOW_BYTES,
    LinkLimits,
)


def test_what_we_send_is_always_less_than_what_a_peer_takes() -> None:
    assert PACKET_BYTES + FRAGMENT_BYTES < PACKET_BYTES_MAX / 2, "the rest is for control frames and a hello"
    assert 3 * PACKET_PIECES + 5 <= PACKET_FRAMES_MAX, "pieces, control frames, grants, and one of each other kind"


def test_a_window_holds_several_pieces() -> None:
    assert 4 * (FRAGMENT_BYTES + ITEM_OVERHEAD_BYTES) < WINDOW_BYTES


@pytest.mark.parametrize(
    "wrong",
    [
        {"streams_max": 0},
        {"message_bytes_max": 0},
        {"control_frames_max": 0},
        {"backoff_min_s": 0.0},
        {"backoff_min_s": 6.0},
        {"ping_interval_s": 0.0},
        {"ping_interval_s": 60.0},
    ],
)
def test_limits_that_do_not_fit_together_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        LinkLimits(**wrong)  # type: ignore[arg-type]
