"""Text in, text out: `translate` cuts a request into segments, runs them, and joins them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from edge_worker.core.join import Join, Piece
from edge_worker.core.laps import Laps
from edge_worker.core.placement import Policy
from edge_worker.core.resume import resume
from edge_worker.core.segment_limits import SegmentLimits
from edge_worker.core.segmenter import Segmented, segment
from edge_worker.core.stability import masked
from edge_worker.engine_thread import Run
from edge_worker.models import Models
from edge_worker.origin_client import OriginClient
from edge_worker.segment_run import SegmentRuns
from edge_worker.shared_runs import SharedRuns
from edge_worker.together import together
from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, Overloaded
from nearsay.wire.messages import Translate, Translated, TranslatedText, Update
from nearsay.wire.options import valid_decoding, valid_stability

Emit = Callable[[Update], None]
LONG_RETRY_MS = 1000.0  # about what a long text takes


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one request."""

    texts_max: int = 1024
    characters_max: int = 2_000_000  # of all texts together
    segments_in_flight_max: int = 64  # the others wait here, so that one long text doesn't fill the queues
    inline_characters_max: int = 16_384  # longer texts are cut off the event loop
    long_characters_max: int = 4_000_000  # of all requests longer than that together: segments cost memory


class Pipeline:
    """Everything an edge does with a `Translate`, whoever sent it."""

    def __init__(
        self,
        models: Models,
        origins: OriginClient,
        shared: SharedRuns,
        *,
        policy: Policy,
        limits: RequestLimits,
        segment_limits: SegmentLimits,
        offload: Run,
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._models = models
        self._origins = origins
        self._shared = shared
        self._policy = policy
        self._limits = limits
        self._segment_limits = segment_limits
        self._offload = offload
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks
        self._long_characters = 0  # in flight

    async def translate(self, request: Translate, received: float, emit: Emit | None) -> Translated:
        """Translate all texts; `emit` gets the updates in showing order. Raises any NearsayError.

        `received` is the instant (monotonic seconds) at which the message was read: its budget counts from there.
        """
        laps = Laps(received)
        deadline = received + request.budget_ms / 1000.0
        self._check(request, deadline)
        pair = await self._models.find(request.source, request.target)
        runs = SegmentRuns(
            request,
            pair,
            self._origins,
            self._shared,
            models=self._models,
            deadline=deadline,
            policy=self._policy,
            limits=self._segment_limits,
            in_flight_max=self._limits.segments_in_flight_max,
            metrics=self._metrics,
            clock=self._clock,
            tasks=self._tasks,
        )
        with self._room(sum(map(len, request.texts))):
            joins = [Join(item, await self._segment(text, request.source)) for item, text in enumerate(request.texts)]
            if (request.done or request.models) and not resume(joins, request, pair.models) and emit is not None:
                emit(Update(0, 0, 0, "restart", ""))
            laps.lap("segment", self._clock())
            laps = await self._run([_Part(request, join, emit) for join in joins], runs, laps)
            texts = tuple(_answer(join, request) for join in joins)
        ended = self._clock()
        laps.lap("join", ended)
        return Translated(texts, laps.ms, (ended - received) * 1000.0)

    def _check(self, request: Translate, deadline: float) -> None:
        """What the door must refuse, whoever is at it."""
        if self._clock() >= deadline:
            raise DeadlineExceeded("no time was left")
        if request.source == "auto":
            raise InvalidRequest(code="detection_unavailable")
        if not request.texts:
            raise InvalidRequest(code="empty_text")
        valid_decoding(request.decoding, request.tier, valid_stability(request.stability, request.session))
        if len(request.texts) > self._limits.texts_max:
            raise InvalidRequest(f"at most {self._limits.texts_max} texts", code="text_too_long")
        if sum(map(len, request.texts)) > self._limits.characters_max:
            raise InvalidRequest(f"at most {self._limits.characters_max} characters", code="text_too_long")

    @contextmanager
    def _room(self, characters: int) -> Iterator[None]:
        """Memory for a long request while it runs; short ones always have it. Raises Overloaded."""
        counted = characters if characters > self._limits.inline_characters_max else 0
        if counted and self._long_characters + counted > self._limits.long_characters_max:
            raise Overloaded("too many long texts at once", retry_after_ms=LONG_RETRY_MS)
        self._long_characters += counted
        try:
            yield
        finally:
            self._long_characters -= counted

    async def _segment(self, text: str, language: str) -> Segmented:
        if len(text) <= self._limits.inline_characters_max:
            return segment(text, language)
        return await self._offload(lambda: segment(text, language))

    async def _run(self, parts: list[_Part], runs: SegmentRuns, laps: Laps) -> Laps:
        """Run every segment; the laps of the one that finished last."""
        work = [(part, index) for part in parts for index in part.join.left()]
        if not work:
            return laps
        if len(work) == 1:  # the common case pays for no task
            part, index = work[0]
            await part.run(runs, index, laps)
            return laps
        left = iter(work)
        latest = laps

        async def worker() -> None:
            nonlocal latest
            for part, index in left:
                fork = laps.fork()
                fork.lap("edge_queue", self._clock())
                await part.run(runs, index, fork)
                if fork.last >= latest.last:
                    latest = fork
                await asyncio.sleep(0)  # segments that wait for nothing must not keep the loop

        workers = min(len(work), self._limits.segments_in_flight_max)
        await together(self._tasks, [worker] * workers, name="segments")
        return latest


class _Part:
    """One text of a request, and whoever is shown its segments."""

    def __init__(self, request: Translate, join: Join, emit: Emit | None) -> None:
        self.join = join
        self._request = request
        self._emit = emit

    async def run(self, runs: SegmentRuns, index: int, laps: Laps) -> None:
        """Translate one segment and show its states."""
        show = partial(self._show, index) if self._emit is not None else None
        self._show(index, await runs.translate(self.join.segments[index], laps, show))

    def _show(self, index: int, piece: Piece) -> None:
        updates = self.join.add(index, masked(self._request, self.join.segments[index], piece))
        if self._emit is not None:
            for update in updates:
                self._emit(update)


def _answer(join: Join, request: Translate) -> TranslatedText:
    pieces = join.pieces()
    best = next((piece for piece in reversed(pieces) if piece.tier == "origin"), None)
    best = best or next((piece for piece in reversed(pieces) if piece.model), Piece(""))
    degraded = next((piece.degraded for piece in pieces if piece.degraded), "")
    return TranslatedText(
        text=join.text(),
        source=request.source,
        tier=best.tier,
        model=best.model,
        segments=join.segment_texts() if request.segments else (),
        degraded=bool(degraded),
        degraded_reason=degraded,
        bias=pieces[-1].bias if pieces else 0.0,
        masked=pieces[-1].masked if pieces else 0,
        alternatives=join.alternatives(),
        alignment=join.alignment(),
    )
