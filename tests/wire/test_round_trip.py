from __future__ import annotations

import pytest

from nearsay.wire import events as ev
from nearsay.wire.limits import LinkLimits
from nearsay.wire.protocol import Frame
from nearsay.wire.round_trip import SAMPLES, RoundTrip
from tests.wire.conversation import Conversation, packet_of


def timed(*round_trips_s: float) -> float | None:
    trip = RoundTrip()
    for number, rtt_s in enumerate(round_trips_s):
        trip.asked(number, 10.0 * number)
        assert trip.answered(number, 10.0 * number + rtt_s)
    return trip.rtt_s


def test_nothing_is_known_before_the_first_answer() -> None:
    assert timed() is None
    assert timed(0.02) == pytest.approx(0.02)


def test_one_late_answer_is_not_distance_but_a_new_path_is() -> None:
    assert timed(0.02, 0.5) == pytest.approx(0.02)
    assert timed(0.02, 0.02, 0.5, 0.02) == pytest.approx(0.02)
    assert timed(*[0.02] * 20, 0.08, 0.08, 0.08) == pytest.approx(0.08)
    assert timed(*[9.0] * SAMPLES, *[0.02] * SAMPLES) == pytest.approx(0.02)


def test_an_answer_that_nobody_asked_for_tells_nothing() -> None:
    trip = RoundTrip()
    assert not trip.answered(0, 1.0)
    trip.asked(1, 1.0)
    assert not trip.answered(2, 1.1)
    assert trip.rtt_s is None
    assert trip.answered(1, 1.5)
    assert not trip.answered(1, 1.6)
    assert trip.rtt_s == 0.5


def test_a_round_trip_longer_than_the_interval_is_timed_all_the_same() -> None:
    trip = RoundTrip()
    for number in range(1, 4):
        trip.asked(number, float(number))
    assert trip.answered(1, 3.5)
    assert trip.rtt_s == 2.5


class TestOnALink:
    def test_the_hello_is_the_first_sample(self) -> None:
        talk = Conversation(greet=False)
        assert talk.left.rtt_s is None
        talk.to_right()
        talk.now += 0.03
        talk.to_left()
        assert talk.left.rtt_s == pytest.approx(0.03)
        assert talk.right.rtt_s is None, "who was greeted has asked nothing yet"

    def test_each_pong_is_one_and_is_told(self) -> None:
        talk = Conversation(LinkLimits(ping_interval_s=1.0))
        for _ in range(SAMPLES):
            talk.now += 1.0
            for side in (talk.left, talk.right):
                side.tick(talk.now)
            talk.to_right()
            talk.now += 0.08
            assert talk.to_left() == [ev.Timed()]
            talk.to_right()
        assert talk.left.rtt_s == pytest.approx(0.08)
        assert talk.right.rtt_s == pytest.approx(0.08)

    def test_a_peer_that_answers_before_it_is_asked_looks_no_nearer(self) -> None:
        talk = Conversation(LinkLimits(ping_interval_s=1.0))
        assert talk.left.receive(packet_of([Frame.PONG, 1]), talk.now) == []
        talk.now += 1.0
        talk.left.tick(talk.now)
        talk.to_right()
        talk.now += 0.4
        assert talk.left.receive(packet_of([Frame.PONG, 7]), talk.now) == []
        talk.to_left()
        assert talk.left.rtt_s == 0.0, "of its hello; the forged numbers are no samples"
