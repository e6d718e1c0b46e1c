"""The tries of one request that are under way: one, or for a while two. The first good answer ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import EndOfStream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import DeadlineExceeded, InternalError, NearsayError, Overloaded
from nearsay.wire.messages import Message, Translate, Translated
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Outcome, Permit
from proxy.edges import EdgePeer, EdgeStream

PassOn = Callable[[Message], Awaitable[None]]
Ended = Callable[[Permit, Outcome, Translated | None], None]


class Try:
    """One attempt. Whatever ends it, the edge's stream and the permit end with it."""

    def __init__(
        self,
        permit: Permit,
        attempts: Attempts,
        peer: EdgePeer,
        message: Translate,
        *,
        pass_on: PassOn,
        ended: Ended,
        clock: Clock,
    ) -> None:
        """`message.budget_ms` is set when it is sent. `ended` must end the permit."""
        self.permit = permit
        self.answered = 0.0
        self._attempts = attempts
        self._peer = peer
        self._message = message
        self._pass_on = pass_on
        self._ended = ended
        self._clock = clock
        self._stream: EdgeStream | None = None
        self._lost = False

    async def run(self) -> Translated:
        """The edge's answer. Raises NearsayError, Cancelled after `lose`."""
        outcome: Outcome = "ignored"
        answer: Translated | None = None
        try:
            self._stream = await self._peer.open(self._message)
            while not isinstance(message := await self._stream.receive(), Translated):
                self.permit.heard = True
                await self._pass_on(message)
            outcome, answer = "ok", message
        except EndOfStream:
            outcome = "failed"
            raise InternalError("an edge ended without an answer") from None
        except NearsayError as error:
            outcome = "late" if self._lost else _outcome(error)
            self._attempts.failed(self.permit.endpoint, error)
            raise
        except asyncio.CancelledError:  # the client left, the deadline passed, or the other try was better
            outcome = "late" if self._attempts.deadline.expired(self._clock()) else "ignored"
            raise
        finally:
            self.answered = self._clock()
            if self._stream is not None:
                self._stream.cancel()
            self._ended(self.permit, outcome, answer)
        return _labelled(answer) if self.permit.tier != self.permit.work.tier else answer

    def lose(self) -> None:
        """The other try has won: end this one, down to whatever works for it."""
        self._lost = True
        if self._stream is not None:
            self._stream.cancel()


async def race(
    first: Try, second: Callable[[bool], Try | None], late_s: tuple[float, float] | None, tasks: Tasks
) -> tuple[Translated, Try]:
    """The answer and the try that had it: `first`, or a `second` begun when the first is late (None: never).

    `late_s`: seconds until it is late, and until it is stuck. `second` is asked when it is late, and with True when it
    is stuck, and again, until there is one. A second try that fails changes nothing. Raises what `first` does when
    neither answers.
    """
    if late_s is None:
        return await first.run(), first
    after_s, stuck_s = late_s
    hedges: list[asyncio.Task[tuple[Translated, Try] | None]] = []

    async def beside() -> tuple[Translated, Try] | None:
        hedge = second(False)  # not before the task runs: one that is cancelled before it begins must hold nothing
        wait_s = stuck_s - after_s
        while hedge is None:
            await asyncio.sleep(wait_s)
            hedge, wait_s = second(True), stuck_s
        try:
            answer = await hedge.run()
        except NearsayError:
            return None
        first.lose()
        return answer, hedge

    timer = asyncio.get_running_loop().call_later(after_s, lambda: hedges.append(tasks.spawn(beside(), name="hedge")))
    try:
        return await first.run(), first
    except NearsayError:
        for hedge in hedges:
            if (won := await hedge) is not None:
                return won
        raise
    finally:
        timer.cancel()
        for hedge in hedges:
            hedge.cancel()


def _outcome(error: NearsayError) -> Outcome:
    match error:
        case Overloaded():
            return "refused"
        case DeadlineExceeded():
            return "late"
        case InternalError():
            return "failed"
    return "failed" if error.retryable else "ignored"


def _labelled(answer: Translated) -> Translated:
    """An origin stood in for the edge model that was asked for."""
    return msgspec.structs.replace(
        answer,
        translations=tuple(
            translation
            if translation.degraded
            else msgspec.structs.replace(translation, degraded=True, degraded_reason="edge_unavailable")
            for translation in answer.translations
        ),
    )
