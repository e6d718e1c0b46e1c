"""Two sessions, any interleaving: no answer lost, doubled or mixed up, no stream or byte left behind."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nearsay.wire import events as ev
from nearsay.wire.errors import NearsayError, Overloaded
from nearsay.wire.limits import WINDOW_BYTES, LinkLimits
from nearsay.wire.messages import Message, Tokens, Translate
from nearsay.wire.session import Session
from tests.wire.conversation import Conversation, ask

LIMITS = LinkLimits(streams_max=6, stream_queued_bytes_max=400_000, link_queued_bytes_max=2_000_000)
sizes = st.sampled_from([1, 40, 5_000, 33_000, 300_000, 700_000])
choices = st.integers(0, 1_000)


class Ends:
    """What one side's users sent and saw."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.asked: dict[int, list[Message]] = {}  # our open streams: what came back so far
        self.answering: list[int] = []  # the peer's open streams
        self.unread: list[tuple[int, int]] = []

    def told(self, events: list[ev.Event], sent: dict[int, list[Message]], finished: set[int]) -> None:
        for event in events:
            match event:
                case ev.Opened(stream=stream, message=message):
                    assert isinstance(message, Translate) and stream not in self.answering
                    self.answering.append(stream)
                case ev.Received(stream=stream, message=message, cost=cost):
                    self.asked[stream].append(message)
                    self.unread.append((stream, cost))
                case ev.Done(stream=stream, message=message):
                    assert stream in finished
                    assert [*self.asked.pop(stream), message] == sent[stream], "all, once, in order"
                case ev.Failed(stream=stream):
                    if stream in self.answering:
                        self.answering.remove(stream)
                    elif self.asked.pop(stream, None) is not None:
                        assert stream not in finished, "an answer was given, and lost"
                    else:
                        assert stream in finished, "a cancel that crossed the answer"


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.talk = Conversation(LIMITS)
        self.left, self.right = Ends(self.talk.left), Ends(self.talk.right)
        self.sent: dict[int, list[Message]] = {}
        self.finished: set[int] = set()
        self.number = 0

    def side(self, choice: int) -> Ends:
        return (self.left, self.right)[choice % 2]

    @rule(choice=choices, size=sizes)
    def open(self, choice: int, size: int) -> None:
        ends = self.side(choice)
        try:
            stream = ends.session.open(ask("x" * size), self.talk.now)
        except Overloaded:
            return
        ends.asked[stream] = []
        self.sent[stream] = []

    @rule(choice=choices, size=sizes, final=st.booleans())
    def answer(self, choice: int, size: int, final: bool) -> None:
        ends = self.side(choice)
        if not ends.answering:
            return
        stream = ends.answering[choice % len(ends.answering)]
        self.number += 1
        message = Tokens(self.number.to_bytes(4, "big") + bytes(size))
        try:
            ends.session.send(stream, message, final=final)
        except Overloaded:
            return
        self.sent[stream].append(message)
        if final:
            ends.answering.remove(stream)
            self.finished.add(stream)

    @rule(choice=choices)
    def reject(self, choice: int) -> None:
        ends = self.side(choice)
        if ends.answering:
            ends.session.reject(ends.answering.pop(choice % len(ends.answering)), NearsayError())

    @rule(choice=choices)
    def cancel(self, choice: int) -> None:
        ends = self.side(choice)
        if ends.asked:
            stream = sorted(ends.asked)[choice % len(ends.asked)]
            ends.session.cancel(stream)
            del ends.asked[stream]

    @rule(choice=choices)
    def read(self, choice: int) -> None:
        ends = self.side(choice)
        if ends.unread:
            ends.session.consumed(*ends.unread.pop(0))

    @rule(choice=choices)
    def carry_one_packet(self, choice: int) -> None:
        source, sink = self.side(choice), self.side(choice + 1)
        if packet := source.session.data_to_send(self.talk.now):
            sink.told(sink.session.receive(packet, self.talk.now), self.sent, self.finished)

    @precondition(lambda self: self.left.unread or self.right.unread)
    @rule()
    def read_all(self) -> None:
        for ends in (self.left, self.right):
            while ends.unread:
                ends.session.consumed(*ends.unread.pop(0))

    @invariant()
    def bounded(self) -> None:
        for ends in (self.left, self.right):
            session = ends.session
            assert session.streams.ours <= LIMITS.streams_max
            assert session.streams.peers <= LIMITS.streams_max
            assert session.streams.held_bytes >= 0
            assert session._out.queued_bytes <= LIMITS.link_queued_bytes_max + 700_100
            flows = [record.send for record in session.streams._open.values()]
            assert session._out.queued_bytes == sum(flow.queued_bytes for flow in flows)
            for record in session.streams._open.values():
                assert record.receive.held <= 2 * WINDOW_BYTES + 800_000

    def teardown(self) -> None:
        """Finish every stream, carry everything: nothing may be left on either side."""
        for _ in range(2_000):
            for ends in (self.left, self.right):
                while ends.answering:
                    ends.session.reject(ends.answering.pop(), NearsayError())
            self.read_all()
            for choice in (0, 1):
                self.carry_one_packet(choice)
            if not (self.left.session.streams or self.right.session.streams):
                break
        self.carry_one_packet(0)
        self.carry_one_packet(1)
        assert not self.left.asked and not self.right.asked
        for ends in (self.left, self.right):
            assert len(ends.session.streams) == ends.session.streams.held_bytes == 0
            assert ends.session.streams.ours == ends.session.streams.peers == 0
            assert ends.session._out.queued_bytes == 0


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
