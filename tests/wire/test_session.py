"""Conversations: what one side says, what the other is told. No socket, no clock."""

from __future__ import annotations

import pytest

from nearsay.wire import events as ev
from nearsay.wire.errors import Cancelled, InternalError, Overloaded, Unavailable
from nearsay.wire.limits import FRAGMENT_BYTES, WINDOW_BYTES, LinkLimits
from nearsay.wire.messages import Hello, LoadReport, Tokens, Update
from nearsay.wire.protocol import MORE, Frame, LinkState, ProtocolError, Side, StreamState
from nearsay.wire.session import Session
from tests.wire.conversation import Conversation, answer, ask, frames, kinds, packet_of


def refused(session: Session, packet: bytes, now: float = 100.0) -> str:
    """Code of the protocol error that a packet is; the link must be over after it."""
    with pytest.raises(ProtocolError) as caught:
        session.receive(packet, now)
    assert session.state is LinkState.CLOSED
    assert session.data_to_send(now) == b"" and not session.streams
    assert session.receive(packet, now) == []
    return caught.value.code


class TestGreeting:
    def test_both_sides_learn_of_each_other_and_the_acceptor_keeps_its_secret(self) -> None:
        talk = Conversation(greet=False)
        assert talk.left.state is talk.right.state is LinkState.GREETING
        (right_told,) = talk.to_right()
        (left_told,) = talk.to_left()
        assert right_told == ev.Up(Hello("proxy")) and left_told == ev.Up(Hello("edge"))
        assert talk.left.state is talk.right.state is LinkState.UP

    def test_the_acceptor_says_nothing_to_who_has_not_greeted(self) -> None:
        talk = Conversation(greet=False)
        assert talk.right.data_to_send(talk.now) == b""

    def test_hello_tells_the_limit_of_its_side(self) -> None:
        talk = Conversation(LinkLimits(message_bytes_max=1000))
        assert talk.right.remote is not None and talk.right.remote.message_bytes_max == 1000

    def test_one_of_the_secrets_must_be_shown(self) -> None:
        Conversation(secrets=("old", "neü"), secret="neü")
        for wrong in ("", "NEU", "oldold"):
            talk = Conversation(secrets=("old", "neü"), secret=wrong, greet=False)
            assert refused(talk.right, talk.left.data_to_send(talk.now)) == "unauthorised"

    def test_another_protocol_version_is_refused_by_both(self) -> None:
        other = Session(Side.CONNECT, Hello("proxy", protocol=2), LinkLimits(), now=0.0)
        hello = other.data_to_send(0.0)
        assert refused(Conversation(greet=False).right, hello) == "protocol_version"
        assert refused(Conversation(greet=False).left, hello) == "protocol_version"

    def test_hello_comes_first_and_once(self) -> None:
        assert refused(Conversation(greet=False).right, packet_of([Frame.PING, 1])) == "hello_first"
        talk = Conversation(greet=False)
        hello = talk.left.data_to_send(talk.now)
        talk.right.receive(hello, talk.now)
        assert refused(talk.right, hello) == "second_hello"

    def test_who_never_greets_is_given_up(self) -> None:
        talk = Conversation(LinkLimits(hello_timeout_s=5.0), greet=False)
        talk.right.tick(104.9)
        with pytest.raises(ProtocolError, match="hello_timeout"):
            talk.right.tick(105.0)
        assert talk.right.state is LinkState.CLOSED

    def test_nothing_can_be_opened_before(self) -> None:
        talk = Conversation(greet=False)
        with pytest.raises(Unavailable):
            talk.left.open(ask(), talk.now)
        talk.left.report(LoadReport("ready"))
        assert kinds(talk.left.data_to_send(talk.now)) == [Frame.HELLO]


class TestStreams:
    def test_a_question_and_its_answer(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.send(stream, answer(), final=True)
        assert talk.to_left() == [ev.Done(stream, answer())]
        assert not talk.left.streams and not talk.right.streams

    def test_updates_come_in_order_before_the_final_message(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        updates = [Update(0, 0, i, "partial", "x" * i) for i in range(3)]
        for update in updates:
            talk.right.send(stream, update)
        talk.right.send(stream, answer(), final=True)
        told = talk.to_left()
        assert [event.message for event in told] == [*updates, answer()]  # type: ignore[attr-defined]
        assert isinstance(told[-1], ev.Done)

    def test_both_sides_may_open(self) -> None:
        talk = Conversation()
        assert talk.left.open(ask(), talk.now) == 1
        assert talk.right.open(ask(), talk.now) == 2
        talk.settle()
        assert talk.left.streams.peers == talk.left.streams.ours == 1

    def test_the_opener_may_say_more_while_the_stream_is_open(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.left.send(stream, Tokens(b"more"))
        (event,) = talk.to_right()
        assert isinstance(event, ev.Received) and event.message == Tokens(b"more")

    def test_a_reject_carries_code_detail_and_when_to_retry(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.send(stream, Tokens(b"dropped"))
        talk.right.reject(stream, Overloaded("busy \ud800" + "x" * 1000, retry_after_ms=250.0))
        talk.right.reject(stream, InternalError("once only"))
        (event,) = talk.to_left()
        assert isinstance(event, ev.Failed) and isinstance(event.error, Overloaded)
        assert event.error.retry_after_ms == 250.0 and event.error.detail.startswith("busy ?x")
        assert len(event.error.detail) == 500
        assert not talk.left.streams and not talk.right.streams

    def test_an_unknown_code_is_kept(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.reject(stream, InternalError(code="from_the_future"))
        (event,) = talk.to_left()
        assert isinstance(event, ev.Failed) and event.error.code == "from_the_future"
        assert event.error.retry_after_ms is None

    def test_a_cancel_ends_it_on_both_sides_and_drops_what_was_queued(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.send(stream, answer(), final=True)
        talk.left.cancel(stream)
        talk.left.cancel(stream)
        (event,) = talk.to_right()
        assert isinstance(event, ev.Failed) and isinstance(event.error, Cancelled)
        assert talk.to_left() == []
        assert not talk.left.streams and not talk.right.streams

    def test_cancel_from_the_answering_side_is_a_reject(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.cancel(stream)
        (event,) = talk.to_left()
        assert isinstance(event, ev.Failed) and event.error.code == "cancelled"

    def test_a_cancel_before_anything_was_written_says_nothing(self) -> None:
        talk = Conversation()
        talk.left.cancel(talk.left.open(ask(), talk.now))
        assert talk.left.data_to_send(talk.now) == b""
        assert talk.opened() == 3, "the peer takes the next id all the same"

    def test_a_cancel_in_the_middle_of_a_long_opening(self) -> None:
        talk = Conversation()
        stream = talk.left.open(ask("x" * 500_000), talk.now)
        talk.right.receive(talk.left.data_to_send(talk.now), talk.now)
        assert talk.right.streams.state(stream) is StreamState.OPENING
        talk.left.cancel(stream)
        assert talk.settle() == ([], []), "the handler never hears of it"
        assert talk.right.streams.held_bytes == 0 and not talk.right.streams

    def test_frames_that_crossed_the_end_are_ignored(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.send(stream, Tokens(b"on its way"))
        crossing = talk.right.data_to_send(talk.now)
        talk.left.cancel(stream)
        assert talk.left.receive(crossing, talk.now) == []
        talk.to_right()
        late = packet_of([Frame.CREDIT, [stream, 100]], [Frame.DATA, [stream, 0, b"?"]], [Frame.CANCEL, stream])
        assert talk.right.receive(late, talk.now) == []

    def test_long_messages_come_through_whole_both_ways(self) -> None:
        talk = Conversation()
        text = "Fünf " * 200_000
        stream = talk.left.open(ask(text), talk.now)
        _, told = talk.settle()
        (event,) = told
        assert isinstance(event, ev.Opened) and event.message == ask(text)
        talk.right.send(stream, answer(text), final=True)
        told, _ = talk.settle()
        assert told == [ev.Done(stream, answer(text))]
        assert talk.left.streams.held_bytes == talk.right.streams.held_bytes == 0


class TestBudget:
    def test_the_time_a_request_waits_to_be_written_is_taken_off(self) -> None:
        talk = Conversation()
        talk.left.open(ask(budget_ms=1000.0), talk.now)
        talk.now += 0.3
        (event,) = talk.to_right()
        assert isinstance(event, ev.Opened)
        assert event.message.budget_ms == pytest.approx(700.0)  # type: ignore[attr-defined]

    def test_the_time_its_pieces_take_is_taken_off(self) -> None:
        talk = Conversation()
        talk.left.open(ask("x" * 3 * FRAGMENT_BYTES, budget_ms=1000.0), talk.now)
        first = talk.left.data_to_send(talk.now)
        assert talk.right.receive(first, talk.now) == []
        talk.now += 0.25
        (event,) = talk.to_right()
        assert isinstance(event, ev.Opened)
        assert event.message.budget_ms == pytest.approx(750.0)  # type: ignore[attr-defined]

    def test_a_spent_budget_arrives_as_zero(self) -> None:
        talk = Conversation()
        talk.left.open(ask(budget_ms=10.0), talk.now)
        talk.now += 1.0
        (event,) = talk.to_right()
        assert isinstance(event, ev.Opened) and event.message.budget_ms == 0.0  # type: ignore[attr-defined]

    @pytest.mark.parametrize("budget_ms", [-1.0, float("nan"), float("inf")])
    def test_a_senseless_budget_is_a_protocol_error(self, budget_ms: float) -> None:
        talk = Conversation()
        assert refused(talk.right, packet_of([Frame.OPEN, 1, 0, budget_ms, b"x"])) == "malformed_packet"


class TestLimits:
    def test_streams_of_our_own(self) -> None:
        talk = Conversation(LinkLimits(streams_max=2))
        streams = [talk.left.open(ask(), talk.now) for _ in range(2)]
        with pytest.raises(Overloaded) as caught:
            talk.left.open(ask(), talk.now)
        assert caught.value.code == "too_many_streams"
        talk.left.cancel(streams[0])
        talk.left.open(ask(), talk.now)

    def test_streams_of_the_peer_are_rejected_one_by_one(self) -> None:
        talk = Conversation(right_limits=LinkLimits(streams_max=1))
        kept, extra = talk.left.open(ask(), talk.now), talk.left.open(ask("x" * 100_000), talk.now)
        told_left, told_right = talk.settle()
        assert [type(event) for event in told_right] == [ev.Opened]
        (event,) = told_left
        assert isinstance(event, ev.Failed) and event.stream == extra and event.error.code == "too_many_streams"
        assert talk.right.streams.get(kept) is not None

    def test_a_message_longer_than_the_peer_takes_is_refused_here(self) -> None:
        talk = Conversation(right_limits=LinkLimits(message_bytes_max=1000))
        with pytest.raises(Exception, match="text_too_long"):
            talk.left.open(ask("x" * 1000), talk.now)
        assert not talk.left.streams

    def test_a_message_longer_than_we_take_ends_the_link(self) -> None:
        talk = Conversation(right_limits=LinkLimits(message_bytes_max=FRAGMENT_BYTES))
        piece = bytes(FRAGMENT_BYTES)
        assert talk.right.receive(packet_of([Frame.OPEN, 1, MORE, 1.0, piece]), talk.now) == []
        assert refused(talk.right, packet_of([Frame.DATA, [1, 0, b"x"]])) == "message_too_big"

    def test_what_a_stream_may_queue(self) -> None:
        talk = Conversation(LinkLimits(stream_queued_bytes_max=10_000))
        stream = talk.opened()
        talk.right.send(stream, Tokens(bytes(20_000)))  # one message is always allowed
        with pytest.raises(Overloaded):
            talk.right.send(stream, Tokens(b"x"))
        talk.right.send(stream, answer(), final=True)  # and a stream can always end
        told, _ = talk.settle()
        assert isinstance(told[-1], ev.Done)

    def test_what_a_link_may_queue(self) -> None:
        talk = Conversation(LinkLimits(link_queued_bytes_max=10_000))
        talk.left.open(ask("x" * 9_000), talk.now)
        with pytest.raises(Overloaded):
            talk.left.open(ask("x" * 2_000), talk.now)
        talk.to_right()
        talk.left.open(ask("x" * 2_000), talk.now)

    def test_unread_data_on_the_whole_link(self) -> None:
        """The reader reads nothing: the stream whose piece goes over the bound is ended on both sides."""
        talk = Conversation(LinkLimits(received_bytes_max=100_000))
        streams = [talk.opened() for _ in range(4)]
        for stream in streams:
            talk.right.send(stream, Tokens(bytes(30_000)))
        told_left, told_right = talk.settle()
        failed = [event for event in told_left if isinstance(event, ev.Failed)]
        assert [event.stream for event in failed] == streams[3:]
        assert isinstance(failed[0].error, Overloaded)
        assert [type(event) for event in told_right] == [ev.Failed]
        assert talk.left.streams.held_bytes <= 100_000

    def test_openings_that_never_come_to_an_end(self) -> None:
        talk = Conversation(right_limits=LinkLimits(received_bytes_max=100_000))
        for stream in range(1, 21, 2):
            packet = packet_of([Frame.OPEN, stream, MORE, 1.0, bytes(30_000)])
            assert talk.right.receive(packet, talk.now) == []
            assert talk.right.streams.held_bytes <= 100_000
        assert frames(talk.right.data_to_send(talk.now))[0][:3] == [Frame.REJECT, 7, "overloaded"]

    def test_a_peer_that_opens_without_end_and_reads_nothing(self) -> None:
        talk = Conversation(right_limits=LinkLimits(streams_max=1, control_frames_max=5))
        opens = [[Frame.OPEN, stream, 0, 1.0, b"x"] for stream in range(3, 17, 2)]
        body = frames(talk.left.data_to_send(talk.now))
        assert body == []
        talk.opened()
        assert refused(talk.right, packet_of(*opens)) == "control_overflow"

    def test_our_own_calls_fail_the_link_when_the_peer_reads_no_control_frames(self) -> None:
        talk = Conversation(right_limits=LinkLimits(control_frames_max=1))
        for stream in [talk.opened(), talk.opened()]:
            talk.right.reject(stream, InternalError())
        with pytest.raises(ProtocolError, match="control_overflow"):
            talk.right.data_to_send(talk.now)
        assert talk.right.state is LinkState.CLOSED


class TestBackPressure:
    def test_one_stalled_stream_never_slows_the_other_99(self) -> None:
        talk = Conversation()
        streams = [talk.opened() for _ in range(100)]
        stalled = streams[0]
        while talk.right.can_send(stalled):
            talk.right.send(stalled, Tokens(bytes(10_000)))  # nobody reads it on the left
            talk.to_left()
        for _ in range(50):
            for stream in streams[1:]:
                assert talk.right.can_send(stream)
                talk.right.send(stream, Tokens(b"token"))
            packet = talk.right.data_to_send(talk.now)
            told = talk.left.receive(packet, talk.now)
            assert [event.stream for event in told] == streams[1:], "one packet, all 99, at once"  # type: ignore[attr-defined]
            for event in told:
                assert isinstance(event, ev.Received)
                talk.left.consumed(event.stream, event.cost)
            talk.to_right()
        assert not talk.right.can_send(stalled)

    def test_reading_lets_the_writer_go_on(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        sent = 0
        while talk.right.can_send(stream):
            talk.right.send(stream, Tokens(bytes(50_000)))
            sent += 1
            talk.to_left()
        assert sent * 50_000 > WINDOW_BYTES
        held = talk.left.streams.held_bytes
        assert held <= 2 * WINDOW_BYTES and talk.right.released() == []
        record = talk.left.streams.get(stream)
        assert record is not None
        talk.left.consumed(stream, record.receive.unread)
        talk.to_right()
        talk.to_left()
        assert talk.right.released() == [stream]
        assert talk.right.can_send(stream)

    def test_who_waits_for_the_link_is_released_when_it_drains(self) -> None:
        talk = Conversation(LinkLimits(link_queued_bytes_max=100_000))
        first, second = talk.opened(), talk.opened()
        talk.right.send(first, Tokens(bytes(60_000)))
        assert not talk.right.can_send(second)
        talk.to_left()
        assert talk.right.released() == [second]

    def test_who_waits_for_the_link_is_released_when_a_stream_is_dropped(self) -> None:
        talk = Conversation(LinkLimits(link_queued_bytes_max=100_000))
        first, second = talk.opened(), talk.opened()
        talk.right.send(first, Tokens(bytes(60_000)))
        assert not talk.right.can_send(second)
        talk.right.reject(first, InternalError())
        assert talk.right.pending and talk.right.released() == [second]

    def test_who_waits_on_a_stream_that_ends_is_released(self) -> None:
        talk = Conversation(LinkLimits(stream_queued_bytes_max=10_000))
        stream = talk.opened()
        talk.right.send(stream, Tokens(bytes(300_000)))
        assert not talk.right.can_send(stream)
        talk.left.cancel(stream)
        talk.to_right()
        assert talk.right.released() == [stream]


class TestLink:
    def test_go_away_refuses_new_streams_and_finishes_open_ones(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        crossing = talk.left.open(ask(), talk.now)
        talk.right.go_away("draining")
        told_left, told_right = talk.settle()
        assert ev.GoAway("draining") in told_left and told_right == []
        (failed,) = [event for event in told_left if isinstance(event, ev.Failed)]
        assert failed.stream == crossing and failed.error.code == "draining" and failed.error.retryable
        with pytest.raises(Unavailable) as caught:
            talk.left.open(ask(), talk.now)
        assert caught.value.code == "draining"
        talk.right.send(stream, answer(), final=True)
        assert talk.to_left() == [ev.Done(stream, answer())]

    def test_go_away_before_the_greeting_is_said_after_it(self) -> None:
        talk = Conversation(greet=False)
        talk.right.go_away("draining")
        talk.to_right()
        assert [type(event) for event in talk.to_left()] == [ev.Up, ev.GoAway]

    def test_a_load_report_overtakes_data(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        talk.right.send(stream, Tokens(bytes(100)))
        talk.right.report(LoadReport("ready", queued=1))
        talk.right.report(LoadReport("ready", queued=2))
        assert [type(event) for event in talk.to_left()] == [ev.Load, ev.Received]
        assert kinds(talk.right.data_to_send(talk.now)) == []

    def test_a_silent_peer_is_pinged_then_given_up(self) -> None:
        talk = Conversation(LinkLimits(ping_interval_s=5.0, ping_timeout_s=15.0))
        talk.left.tick(104.0)
        assert talk.left.data_to_send(104.0) == b""
        talk.left.tick(105.0)
        ping = talk.left.data_to_send(105.0)
        assert frames(ping) == [[Frame.PING, 1]]
        talk.left.tick(110.0)
        with pytest.raises(ProtocolError, match="ping_timeout"):
            talk.left.tick(115.0)
        assert talk.left.state is LinkState.CLOSED
        talk.left.tick(120.0)

    def test_a_peer_that_answers_lives(self) -> None:
        talk = Conversation()
        for _ in range(20):
            talk.now += 5.0
            talk.left.tick(talk.now)
            talk.right.tick(talk.now)
            talk.settle()
        assert talk.left.state is talk.right.state is LinkState.UP

    def test_a_stall_of_our_own_is_not_the_peers_silence(self) -> None:
        talk = Conversation()
        talk.left.tick(1000.0)
        talk.to_right()
        talk.to_left()
        talk.left.tick(1004.0)
        assert talk.left.state is LinkState.UP

    @pytest.mark.parametrize(
        ("frame", "code"),
        [
            ([Frame.OPEN, 2, 0, 1.0, b"x"], "wrong_side"),
            ([Frame.OPEN, 1, 0, 1.0, b"x"], "stream_reused"),
            ([Frame.OPEN, 5, 2, 1.0, b"x"], "malformed_packet"),
            ([Frame.OPEN, 5, 0, 1.0, b"x"], "malformed_message"),
            ([Frame.DATA, [1, 2, b"x"]], "end_from_opener"),
            ([Frame.DATA, [1, 3, b"x"]], "malformed_packet"),
            ([Frame.DATA, [1, 0, b""]], "malformed_packet"),
            ([Frame.DATA, [1, 0, b"\xc1"]], "malformed_message"),
            ([Frame.DATA, [9, 0, b"x"]], "stream_not_open"),
            ([Frame.DATA, [8, 0, b"x"]], "stream_not_open"),
            ([Frame.CREDIT, [9, 1]], "stream_not_open"),
            ([Frame.CREDIT, [1, 0]], "malformed_packet"),
            ([Frame.CANCEL, 9], "stream_not_open"),
            ([Frame.REJECT, 1, "overloaded", "", -1.0], "end_from_opener"),
            ([Frame.LOAD, b"x"], "malformed_message"),
        ],
    )
    def test_what_is_not_legal_ends_the_link_with_its_code(self, frame: list[object], code: str) -> None:
        talk = Conversation()
        talk.opened()
        assert refused(talk.right, packet_of(frame)) == code

    def test_only_the_opener_cancels(self) -> None:
        talk = Conversation()
        stream = talk.opened()
        assert refused(talk.left, packet_of([Frame.CANCEL, stream])) == "cancel_from_answerer"
