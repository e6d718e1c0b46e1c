"""What a session tells its shell. Each is a fact about the peer; the shell performs what follows from it."""

from __future__ import annotations

import msgspec

from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Hello, LoadReport, Message


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class Up(Event, frozen=True):
    """The peer's hello came and is acceptable: streams may be opened."""

    hello: Hello


class Opened(Event, frozen=True):
    """The peer opened a stream; its `budget_ms` counts from now."""

    stream: int
    message: Message


class Received(Event, frozen=True):
    """A message on an open stream. Reading it earns the peer `cost` bytes of credit: `Session.consumed`."""

    stream: int
    message: Message
    cost: int


class Done(Event, frozen=True):
    """The final message of a stream that we opened; the stream is closed."""

    stream: int
    message: Message


class Failed(Event, frozen=True):
    """A stream ended without a final message: rejected (by the peer or a limit of ours) or cancelled by the peer."""

    stream: int
    error: NearsayError


class Load(Event, frozen=True):
    """The peer's latest load report."""

    report: LoadReport


class GoAway(Event, frozen=True):
    """The peer takes no new streams on this link; open ones go on."""

    reason: str


class Timed(Event, frozen=True):
    """The round trip was measured anew: `Session.rtt_s`."""
