"""One link between two processes, without any I/O: the whole session.

Decides: what each frame of the peer means, when the peer counts as dead. Legal frames are the tables in protocol.py.
Must not know: sockets, tasks, clocks (`now` is an argument), who reads the messages.
Use: `receive` and `tick` give events and raise ProtocolError, after which the link is finished; the calls of the
sending half queue; `data_to_send` gives packets until it gives b"".
Invariants: hello comes first each way; what is kept of the peer is bounded whatever it sends; the accepting side never
sends its secret. `Opened.message.budget_ms` counts from that event: what the pieces of a long opening message took is
subtracted.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from nearsay.wire import events as ev
from nearsay.wire.errors import Cancelled, NearsayError, Overloaded, Unavailable, from_code
from nearsay.wire.limits import BUDGET_MS_MAX, ITEM_OVERHEAD_BYTES, LinkLimits
from nearsay.wire.messages import PROTOCOL_VERSION, Hello, LoadReport, Message
from nearsay.wire.protocol import (
    FINAL,
    MORE,
    Frame,
    Input,
    LinkState,
    ProtocolError,
    Side,
    StreamState,
    link_step,
    stream_step,
)
from nearsay.wire.round_trip import RoundTrip
from nearsay.wire.sending import SendingHalf
from nearsay.wire.streams import StreamRecord

_DATA_INPUTS = {0: Input.DATA, MORE: Input.DATA_PART, FINAL: Input.FINAL}
_OPEN_INPUTS = {0: Input.OPEN, MORE: Input.OPEN_PART}


Authorise = Callable[[str], str | None]
"""Who shows this secret in a hello; None = nobody that may come in. Must not raise, and take as long for each."""


def one_of(secrets: Collection[str]) -> Authorise:
    """Admits who shows one of `secrets`, as ""; whoever comes, when there are none.

    All are compared, each in constant time: how long it takes tells nothing.
    """
    known = [secret.encode() for secret in secrets]
    return lambda shown: "" if not known or sum(hmac.compare_digest(shown.encode(), one) for one in known) else None


ANYBODY = one_of(())


class Session(SendingHalf):
    """State of one link on one side. `who`: what `authorise` said of the peer that connected to us."""

    def __init__(
        self, side: Side, hello: Hello, limits: LinkLimits, *, now: float, authorise: Authorise = ANYBODY
    ) -> None:
        """`authorise` is asked about the hello of who connects to us."""
        super().__init__(side, limits)
        self._side = side
        self._hello = hello
        self.who = ""
        self._authorise = authorise
        self._born = self._ticked = now
        self._silent_s = self._unpinged_s = 0.0
        self._pings = 0
        self._round_trip = RoundTrip()
        self._on_frame = {
            Frame.HELLO: self._on_hello,
            Frame.OPEN: self._on_open,
            Frame.DATA: self._on_data,
            Frame.CREDIT: self._on_credit,
            Frame.CANCEL: self._on_cancel,
            Frame.REJECT: self._on_reject,
            Frame.GO_AWAY: self._on_go_away,
            Frame.PING: self._on_ping,
            Frame.PONG: self._on_pong,
            Frame.LOAD: self._on_load,
        }
        if side is Side.CONNECT:
            self._greet(hello)
            self._round_trip.asked(0, now)  # their hello answers ours: an estimate before the first ping

    @property
    def rtt_s(self) -> float | None:
        """Round trip of this link in seconds, None while it isn't known."""
        return self._round_trip.rtt_s

    def receive(self, packet: bytes, now: float) -> list[ev.Event]:
        """Take one packet. Raises ProtocolError, and nothing else whatever the bytes are."""
        if self.state is LinkState.CLOSED:
            return []
        self._silent_s = 0.0
        events: list[ev.Event] = []
        try:
            for frame in self._codec.unpack(packet):
                step = link_step(self.state, frame[0])
                if step is not None:
                    self.state = step
                    self._on_frame[frame[0]](events, frame, now)
            if self._failure is not None:
                raise self._failure
        except ProtocolError:
            self.close()
            raise
        return events

    def tick(self, now: float) -> None:
        """Time passed: ping a silent peer. Raises ProtocolError (hello_timeout, ping_timeout, control_overflow).

        A tick counts for at most one ping interval, so that a stall of our own is not taken for the peer's silence.
        """
        passed, self._ticked = min(now - self._ticked, self._limits.ping_interval_s), now
        self._silent_s += passed
        self._unpinged_s += passed
        if self.state is LinkState.CLOSED:
            return
        if self.state is LinkState.GREETING:
            if now - self._born >= self._limits.hello_timeout_s:
                self._failure = ProtocolError("hello_timeout")
        elif self._silent_s >= self._limits.ping_timeout_s:
            self._failure = ProtocolError("ping_timeout")
        elif self._unpinged_s >= self._limits.ping_interval_s:
            self._unpinged_s = 0.0
            self._pings += 1
            self._round_trip.asked(self._pings, now)
            self._control(Frame.PING, self._pings)
        if self._failure is not None:
            self.close()
            raise self._failure

    # ---- frames of the link ------------------------------------------------------------------------------------------

    def _greet(self, hello: Hello) -> None:
        hello = msgspec.structs.replace(hello, message_bytes_max=self._limits.message_bytes_max)
        self._out.control(Frame.HELLO, self._codec.encode(hello))

    def _on_hello(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        hello = self._codec.decode_as(frame[1], Hello)
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError("protocol_version", f"{hello.protocol}, ours is {PROTOCOL_VERSION}")
        if self._side is Side.ACCEPT:
            who = self._authorise(hello.secret)
            if who is None:
                raise ProtocolError("unauthorised")
            self.who = who
            self._greet(msgspec.structs.replace(self._hello, secret=""))
        self.remote = msgspec.structs.replace(hello, secret="")
        self._round_trip.answered(0, now)
        if self.leaving:
            self.go_away(self._go_away_reason)
        events.append(ev.Up(self.remote))

    def _on_go_away(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        self.peer_leaving = True
        events.append(ev.GoAway(frame[1]))

    def _on_ping(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        self._out.pong(frame[1])

    def _on_pong(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        """Any packet shows that the peer lives; the pong is the cheapest to ask for, and says how far away it is."""
        if self._round_trip.answered(frame[1], now):
            events.append(ev.Timed())

    def _on_load(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        events.append(ev.Load(self._codec.decode_as(frame[1], LoadReport)))

    # ---- frames of streams -------------------------------------------------------------------------------------------

    def _on_open(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        _, stream, flags, budget_ms, piece = frame
        if flags not in _OPEN_INPUTS or not 0.0 <= budget_ms <= BUDGET_MS_MAX:
            raise ProtocolError("malformed_packet", "OPEN out of range")
        state = stream_step(self.streams.state(stream), _OPEN_INPUTS[flags])
        assert state is not None
        self.streams.pass_peers(stream)
        if self.leaving:
            return self._refuse(stream, Unavailable("the service is shutting down", code="draining"))
        if self.streams.peers >= self._limits.streams_max:
            return self._refuse(stream, Overloaded(f"{self._limits.streams_max} are open", code="too_many_streams"))
        record = self.streams.open_peers(stream, state)
        record.opening_deadline = now + budget_ms / 1e3
        self._take(events, record, state, flags, piece, now)

    def _on_data(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        items = iter(frame[1])
        for stream, flags, piece in zip(items, items, items, strict=True):
            if flags not in _DATA_INPUTS:
                raise ProtocolError("malformed_packet", "unknown flags")
            record = self.streams.get(stream)
            state = stream_step(record.state if record else self.streams.state(stream), _DATA_INPUTS[flags])
            if record is not None and state is not None:
                self._take(events, record, state, flags, piece, now)

    def _take(
        self, events: list[ev.Event], record: StreamRecord, state: StreamState, flags: int, piece: bytes, now: float
    ) -> None:
        """One piece: credit, then the message when it is whole."""
        whole = record.receive.add(piece, flags == MORE, self._limits.message_bytes_max)
        self.streams.held_bytes += len(piece) + ITEM_OVERHEAD_BYTES
        if whole is None:
            self._grant(record)
            if self.streams.held_bytes > self._limits.received_bytes_max:
                self._give_up(events, record)
            return
        body, cost = whole
        message = self._codec.decode(body)
        record.state = state
        if record.opening_deadline is not None:
            self._opened(events, record, message, cost, now)
        elif state is StreamState.CLOSED:
            self._close(record)
            events.append(ev.Done(record.id, message))
        elif self.streams.held_bytes > self._limits.received_bytes_max:
            self._give_up(events, record)
        else:
            events.append(ev.Received(record.id, message, cost))

    def _opened(self, events: list[ev.Event], record: StreamRecord, message: Message, cost: int, now: float) -> None:
        """The opening message is whole: stamp what is left of its budget; it counts as read at once."""
        assert record.opening_deadline is not None
        if hasattr(message, "budget_ms"):
            budget_ms = max(0.0, (record.opening_deadline - now) * 1e3)
            msgspec.structs.force_setattr(message, "budget_ms", budget_ms)  # nobody else has seen the message yet
        record.opening_deadline = None
        events.append(ev.Opened(record.id, message))
        self.consumed(record.id, cost)

    def _give_up(self, events: list[ev.Event], record: StreamRecord) -> None:
        """Too much is unread on this link: end the stream whose piece came last, on both sides."""
        error = Overloaded("too much unread data on the link")
        opened = record.opening_deadline is None
        if record.state is StreamState.ASKING:
            self.cancel(record.id)
        else:
            self.reject(record.id, error)
        if opened:
            events.append(ev.Failed(record.id, error))

    def _on_credit(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        items = iter(frame[1])
        for stream, cost in zip(items, items, strict=True):
            if cost <= 0:
                raise ProtocolError("malformed_packet", "a grant of nothing")
            record = self.streams.get(stream)
            stream_step(self.streams.state(stream), Input.CREDIT)
            if record is not None:
                record.send.credit += cost
                self._out.wake(record.send)

    def _on_cancel(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        self._ended(events, frame[1], Input.CANCEL, Cancelled("the peer left"))

    def _on_reject(self, events: list[ev.Event], frame: list[Any], now: float) -> None:
        _, stream, code, detail, retry_after_ms = frame
        error = from_code(code, detail, retry_after_ms if retry_after_ms >= 0 else None)
        self._ended(events, stream, Input.REJECT, error)

    def _ended(self, events: list[ev.Event], stream: int, given: Input, error: NearsayError) -> None:
        record = self.streams.get(stream)
        if stream_step(self.streams.state(stream), given) is None:
            return
        assert record is not None
        opened = record.opening_deadline is None
        self._close(record)
        if opened:
            events.append(ev.Failed(stream, error))
