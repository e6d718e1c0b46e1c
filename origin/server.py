"""The origin's link handler: `Submit` in, `Tokens` as they come, `Finished` or a reject at the end.

Everything here runs on the event loop. The engine thread is behind `Decoder`; what it does comes back through
`perform`. A caller who leaves, or whose link breaks, cancels its sequence on the way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import Stream
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NearsayError,
    Unavailable,
    from_code,
)
from nearsay.wire.messages import Finished, FinishReason, Submit, Tokens, length_bucket, pack_ids
from origin.core.past_answers import PastAnswers
from origin.core.plan import Effect, Ended, Produced, Refused
from origin.core.sequence import Ending, Spec
from origin.core.sessions import Sessions, SessionUse
from origin.door import Door, past_key, question_of

# reason -> the error that a caller gets instead of an answer
ERRORS: dict[FinishReason, Callable[[Ending], NearsayError]] = {
    "expired": lambda _: DeadlineExceeded(),
    "failed": lambda end: from_code(end.error, retry_after_ms=FAILED_RETRY_MS if end.error == "overloaded" else None),
    "cancelled": lambda _: Unavailable("the origin is stopping", code="draining"),
}
FAILED_RETRY_MS = 1000.0  # memory that ran out is back when those who run now have ended


class Decoder(Protocol):
    """The engine loop, as far as callers need it. Both calls return at once."""

    def submit(self, spec: Spec) -> None:
        """Decode a sequence; what becomes of it arrives as effects. Raises Overloaded or Unavailable."""

    def cancel(self, sequence_id: int) -> None:
        """Stop decoding a sequence."""


class _Caller:
    """Whoever waits for a sequence: ids not yet passed on, and the end once it is known."""

    __slots__ = ("_wake", "end", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.end: Ending | NearsayError | None = None
        self._wake = asyncio.Event()

    def tell(self, ids: Iterable[int], end: Ending | NearsayError | None) -> None:
        self.ids += ids
        self.end = end
        self._wake.set()

    async def news(self) -> list[int]:
        """New ids; none at the end. Ids that came while the link was busy come together."""
        if self.end is None and not self.ids:
            self._wake.clear()
            await self._wake.wait()
        ids, self.ids = self.ids, []
        return ids if self.end is None else []


class OriginServer:
    """All callers of one origin process."""

    def __init__(
        self,
        door: Door,
        decoder: Decoder,
        metrics: Metrics,
        clock: Clock,
        sessions: Sessions | None = None,
        past: PastAnswers | None = None,
    ) -> None:
        """`sessions`, `past`: those that the door takes drafts from."""
        self._door = door
        self._decoder = decoder
        self._metrics = metrics
        self._clock = clock
        self.sessions = sessions
        self.past = past
        self._numbers = count(1)
        self._callers: dict[int, _Caller] = {}
        self.draft_tokens = 0  # verified since the start
        self.draft_tokens_accepted = 0
        self.session_use = SessionUse()

    def __len__(self) -> int:
        """Callers waiting now."""
        return len(self._callers)

    async def submit(self, stream: Stream) -> None:
        """Serve one stream of a link."""
        arrived = self._clock()
        submit = stream.message
        if not isinstance(submit, Submit):
            raise InvalidRequest("an origin takes Submit only")
        spec = self._door.admit(submit, next(self._numbers), arrived)
        if (known := self._known(submit, spec)) is not None:
            await stream.finish(known)
            return
        caller = self._callers[spec.id] = _Caller()
        try:
            self._decoder.submit(spec)
            while ids := await caller.news():
                await stream.send(Tokens(pack_ids(ids)))
            finished = self._finished(spec, caller.end)
            self._remember(submit, spec, caller.end)
            await stream.finish(finished)
        finally:
            del self._callers[spec.id]
            if caller.end is None:
                self._decoder.cancel(spec.id)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Pass on what a step came to. Sequences whose caller has left are passed over."""
        for effect in effects:
            caller = self._callers.get(effect.sequence)
            match effect:
                case Produced(ids=ids):
                    news: tuple[Iterable[int], Ending | NearsayError | None] = (ids, None)
                case Ended(ending=ending):
                    self._metrics.count(
                        "sequences", reason=ending.error if ending.reason == "failed" else ending.reason
                    )
                    news = ((), ending)
                case Refused(code=code, retry_after_ms=retry_after_ms):
                    self._metrics.count("sequences", reason=code)
                    news = ((), from_code(code, retry_after_ms=retry_after_ms))
            if caller is not None:
                caller.tell(*news)

    def abandon(self) -> None:
        """Nobody will step any more: everyone who waits is told so."""
        for caller in self._callers.values():
            caller.tell((), Unavailable("the engine has stopped"))

    def _known(self, submit: Submit, spec: Spec) -> Finished | None:
        """The answer, if the session has it and no more than the ids is wanted."""
        more = spec.want_log_prob or spec.want_alignment or spec.n_best > 1
        if self.sessions is None or not submit.session or more:
            return None
        ids = self.sessions.answer(question_of(submit, spec), spec.arrived)
        if ids is None:
            return None
        self._metrics.count("sequences", reason="session")
        self.session_use.segments += 1
        self.session_use.segments_reused += 1
        self.session_use.plain_passes += len(ids) + 1
        accounted_ms = (self._clock() - spec.arrived) * 1e3
        return Finished(pack_ids(ids), "stop", spec.model, {}, accounted_ms, bias=spec.bias)

    def _remember(self, submit: Submit, spec: Spec, end: Ending | NearsayError | None) -> None:
        if not isinstance(end, Ending) or end.reason != "stop":
            return
        if self.sessions is not None and submit.session:
            self.sessions.remember(question_of(submit, spec), end.ids, self._clock(), spec.caller_draft)
            use = self.session_use
            use.segments += 1
            use.passes += end.steps
            use.plain_passes += len(end.ids) + 1
            use.draft_tokens += end.draft_tokens
            use.draft_tokens_accepted += end.draft_accepted
            use.leaning += spec.bias > 0.0
        if self.past is not None:
            self.past.remember(past_key(submit, spec), end.ids)

    def _finished(self, spec: Spec, end: Ending | NearsayError | None) -> Finished:
        """The answer. Raises the error that stands in its place."""
        if isinstance(end, NearsayError):
            raise end
        assert end is not None
        if end.reason in ERRORS:
            raise ERRORS[end.reason](end)
        accounted_ms = (self._clock() - spec.arrived) * 1e3
        handed_ms = max(accounted_ms - sum(end.stages_ms.values()), 0.0)  # from the engine's thread to this one
        stages_ms = {**end.stages_ms, "origin_link": handed_ms}
        self._metrics.observe_stages(
            {**stages_ms, "e2e": accounted_ms},
            tier="origin",
            bucket=f"{length_bucket(len(spec.source))} tokens",
            pair=spec.model,
        )
        if spec.draft and end.draft_tokens:
            self._metrics.count("drafted_sequences", source=spec.draft_source)
        self.draft_tokens += end.draft_tokens
        self.draft_tokens_accepted += end.draft_accepted
        return Finished(
            ids=pack_ids(end.ids),
            finish_reason=end.reason,
            model=spec.model,
            stages_ms=stages_ms,
            accounted_ms=accounted_ms,
            steps=end.steps,
            draft_accepted=end.draft_accepted,
            draft_tokens=end.draft_tokens,
            log_prob=end.log_prob,
            alignment=end.alignment,
            n_best=tuple(map(pack_ids, end.n_best)),
            bias=spec.bias,
        )
