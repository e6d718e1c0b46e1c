"""A call's arguments, checked once at the SDK's door, in the form that both transports carry.

Checked here is only what would otherwise break a transport or surprise the caller; languages, pairs and limits are the
proxy's to judge, so that its answer is the same whichever way a request travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from nearsay.traffic.deadline import Deadline
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Decoding, Priority, Stability, Tier, Translate

DEADLINES_MS: dict[Priority, float] = {"interactive": 10_000.0, "batch": 120_000.0}


class Request(msgspec.Struct, frozen=True):
    """One call of `translate` or `stream`. `now` is the event loop's time throughout."""

    request_id: str
    texts: tuple[str, ...]
    single: bool  # one bare string was given, not a list
    source: str
    target: str
    tier: Tier
    priority: Priority
    deadline: Deadline
    session: str
    segments: bool
    stream: bool
    stability: Stability | None = None
    decoding: Decoding | None = None

    def budget_ms(self, now: float) -> float:
        """Time left, at least 1 ms: out of time is for the client's own timer to say, not for a zero on the wire."""
        return max(1.0, self.deadline.remaining_ms(now))

    def message(self, now: float, attempt: int) -> Translate:
        """As it opens a stream on the link."""
        return Translate(
            request_id=self.request_id,
            texts=self.texts,
            source=self.source,
            target=self.target,
            tier=self.tier,
            priority=self.priority,
            budget_ms=self.budget_ms(now),
            stream=self.stream,
            segments=self.segments,
            session=self.session,
            attempt=attempt,
            stability=self.stability,
            decoding=self.decoding,
        )

    def body(self, now: float) -> bytes:
        """As the JSON body of `POST /v1/translate`."""
        return msgspec.json.encode(
            {
                "text": self.texts[0] if self.single else self.texts,
                "source": self.source,
                "target": self.target,
                "tier": self.tier,
                "priority": self.priority,
                "deadline_ms": self.budget_ms(now),
                "stream": self.stream,
                "session": self.session,
                "segments": self.segments,
                **self._asked_besides(),
            }
        )

    def _asked_besides(self) -> dict[str, object]:
        """Fields that a proxy of an earlier version would refuse: sent only where they say something."""
        fields: dict[str, object] = {} if self.decoding is None else msgspec.structs.asdict(self.decoding)
        if self.stability is not None:
            fields["stability"] = msgspec.structs.asdict(self.stability)
        return fields


class Options(msgspec.Struct, frozen=True):
    """The optional arguments of a call, with their defaults: written once, for both clients."""

    tier: Tier = "auto"
    priority: Priority = "interactive"
    deadline_ms: float | None = None  # None = DEADLINES_MS of the priority
    session: str = ""
    segments: bool = False
    stability: Stability | None = None
    decoding: Decoding | None = None


def make_request(
    text: str | Sequence[str],
    source: str,
    target: str,
    options: Options,
    *,
    stream: bool,
    request_id: str,
    now: float,
) -> Request:
    """Check a call's arguments. Raises InvalidRequest (`invalid_request`, `invalid_text`, `empty_text`)."""
    if options.tier not in get_args(Tier):
        raise InvalidRequest(f"tier must be one of {', '.join(get_args(Tier))}")
    if options.priority not in get_args(Priority):
        raise InvalidRequest(f"priority must be one of {', '.join(get_args(Priority))}")
    budget_ms = DEADLINES_MS[options.priority] if options.deadline_ms is None else options.deadline_ms
    if not 0 < budget_ms < float("inf"):
        raise InvalidRequest("deadline_ms must be a positive, finite number")
    return Request(
        request_id=request_id,
        texts=_checked_texts(text),
        single=isinstance(text, str),
        source=_encodable(source, "source"),
        target=_encodable(target, "target"),
        tier=options.tier,
        priority=options.priority,
        deadline=Deadline.after_ms(budget_ms, now),
        session=_encodable(options.session, "session"),
        segments=options.segments,
        stream=stream,
        stability=options.stability,
        decoding=options.decoding,
    )


def _checked_texts(text: str | Sequence[str]) -> tuple[str, ...]:
    texts = (text,) if isinstance(text, str) else tuple(text)
    if not texts:
        raise InvalidRequest("the list of texts is empty", code="empty_text")
    return tuple(_encodable(item, "text", code="invalid_text") for item in texts)


def _encodable(value: str, field: str, code: str = "invalid_request") -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{field} must be a string, not {type(value).__name__}", code=code)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{field} holds a lone surrogate at position {error.start}", code=code) from None
    return value
