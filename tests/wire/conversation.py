"""Two sessions with a wire between them that the test moves by hand, on a clock that the test sets."""

from __future__ import annotations

from typing import Any

import msgpack

from nearsay.wire import events as ev
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import Hello, Translate, Translated, TranslatedText
from nearsay.wire.protocol import Frame, Side
from nearsay.wire.session import Session, one_of


def ask(text: str = "Good morning", budget_ms: float = 1000.0) -> Translate:
    return Translate("r1", (text,), "en", "de", budget_ms=budget_ms)


def answer(text: str = "Guten Morgen") -> Translated:
    return Translated((TranslatedText(text, "en", "edge", "m@1"),), {"edge_run": 5.0}, 6.0)


def frames(packet: bytes) -> list[list[Any]]:
    return [] if not packet else msgpack.unpackb(packet)  # type: ignore[no-any-return]


def kinds(packet: bytes) -> list[Frame]:
    return [Frame(frame[0]) for frame in frames(packet)]


def packet_of(*parts: list[Any]) -> bytes:
    return msgpack.packb(list(parts))  # type: ignore[no-any-return]


class Conversation:
    """`left` connects, `right` accepts; both are up unless `greet=False`."""

    def __init__(
        self,
        limits: LinkLimits | None = None,
        *,
        right_limits: LinkLimits | None = None,
        secrets: tuple[str, ...] = (),
        secret: str = "",
        greet: bool = True,
    ) -> None:
        self.now = 100.0
        limits = limits or LinkLimits()
        self.left = Session(Side.CONNECT, Hello("proxy", secret=secret), limits, now=self.now)
        self.right = Session(
            Side.ACCEPT,
            Hello("edge", secret="right's own"),
            right_limits or limits,
            now=self.now,
            authorise=one_of(secrets),
        )
        if greet:
            self.to_right()
            self.to_left()

    def to_right(self) -> list[ev.Event]:
        """Carry everything that left has to say."""
        return self._carry(self.left, self.right)

    def to_left(self) -> list[ev.Event]:
        return self._carry(self.right, self.left)

    def settle(self) -> tuple[list[ev.Event], list[ev.Event]]:
        """Carry both ways until nobody has anything to say; what left and right were told."""
        told_left: list[ev.Event] = []
        told_right: list[ev.Event] = []
        for _ in range(10_000):
            right, left = self.to_right(), self.to_left()
            told_left += left
            told_right += right
            if not (right or left or self.left.pending or self.right.pending):
                return told_left, told_right
        raise AssertionError("never settles")

    def opened(self, **kwargs: Any) -> int:
        """A stream that left opened and right knows of."""
        stream = self.left.open(ask(**kwargs), self.now)
        (event,) = self.to_right()
        assert isinstance(event, ev.Opened) and event.stream == stream
        return stream

    def _carry(self, source: Session, sink: Session) -> list[ev.Event]:
        told: list[ev.Event] = []
        while packet := source.data_to_send(self.now):
            told += sink.receive(packet, self.now)
        return told
