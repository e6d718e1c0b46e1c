"""One segment's way through this edge: tokenise, place, run here or far away, detokenise; split what is too long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from functools import partial

import msgspec

from edge_worker.core.coalesce import Who
from edge_worker.core.fair_queue import Share
from edge_worker.core.join import Piece
from edge_worker.core.laps import Laps
from edge_worker.core.placement import Facts, Policy, place
from edge_worker.core.segment_limits import SegmentLimits
from edge_worker.core.segmenter import Segment, split_long
from edge_worker.core.stability import bias_of
from edge_worker.lane import LocalAnswer
from edge_worker.models import STALE, Local, Models, Pair
from edge_worker.origin_client import OriginClient
from edge_worker.parts import Show, merged, shows_of_parts
from edge_worker.shared_runs import Listen, SharedRuns
from edge_worker.submission import answered, equal, growing, submission
from edge_worker.together import together
from nearsay.runtime.clock import Clock
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import LocalInput, LocalOutput
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import Cancelled, NearsayError, Unavailable
from nearsay.wire.messages import Finished, Translate

SPLIT_TOKENS_MIN = 8  # a piece this short that still overruns its target is a loop: its source stands instead


class Drafted(msgspec.Struct, frozen=True):
    """Our answer, and its ids as the origin's model has them."""

    piece: Piece
    ids: Sequence[int]


class SegmentRuns:
    """The segments of one request: what they have in common, and `translate` for each."""

    def __init__(
        self,
        request: Translate,
        pair: Pair,
        origins: OriginClient,
        shared: SharedRuns,
        *,
        models: Models,
        deadline: float,
        policy: Policy,
        limits: SegmentLimits,
        in_flight_max: int,
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """`in_flight_max`: segments, and parts of them, in queues here and at origins; the others wait for these."""
        self._request = request
        self._pair = pair
        self._origins = origins
        self._models = models
        self._again = False  # the origin has the model no more, and is asked for the one that it has now
        self._shared = shared
        self._deadline = deadline
        self._policy = policy
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks
        self._who = Who(request.request_id, request.attempt)
        self._share = Share()
        self._permits = asyncio.Semaphore(in_flight_max)

    async def translate(self, segment: Segment, laps: Laps, show: Show | None) -> Piece:
        """The final state of one segment; `show` gets its drafts and partial states. Raises any NearsayError.

        A segment sticks to the models that its pair has when it begins, though newer ones take their place meanwhile.
        """

        async def attempt(pair: Pair, again: bool) -> Piece:
            mine = copy(self)
            mine._pair, mine._again = pair, again
            if again:
                laps.lap("origin_link", self._clock())
                self._metrics.count("asked_again")
            return await mine._translate(segment, laps, show)

        return await self._models.steadily(self._pair, attempt)

    async def _translate(self, segment: Segment, laps: Laps, show: Show | None) -> Piece:
        if not any(char.isalpha() for char in segment.text):
            return Piece(segment.text)
        pair = self._pair
        ids = self._vocab().encode(segment.plain)
        now = self._clock()
        laps.lap("tokenise", now)
        if len(ids) > self._limits.source_tokens_max:
            return await self._split(segment, self._limits.source_tokens_max, laps, show)
        facts = Facts(
            tier=self._request.tier,
            tokens=len(ids),
            local=pair.local is not None,
            local_ms=self._expected_ms(len(ids)) if self._request.tier == "auto" else 0.0,
            origin=pair.origin_state,
            budget_ms=(self._deadline - now) * 1000.0,
            far="session" if self._request.session else "decoding" if self._request.decoding else "",
        )
        placement = place(facts, self._policy)
        self._metrics.count("placed", place=placement.place, reason=placement.reason)
        if placement.place == "local":
            return await self._local(segment, ids, laps, placement.degraded)
        if placement.place == "both" and (show is not None or self._wants_draft()):
            return await self._both(segment, ids, laps, show)
        return await self._far(segment, ids, laps, show)

    # ---- here --------------------------------------------------------------------------------------------------------

    async def _local(self, segment: Segment, ids: Sequence[int], laps: Laps, degraded: str) -> Piece:
        assert self._pair.local is not None
        output = await self._run(self._pair.local, segment, ids, laps)
        if output.truncated:
            return await self._halve(segment, laps)
        return self._piece(self._pair.local, output, laps, degraded)

    async def _run(self, local: Local, segment: Segment, ids: Sequence[int], laps: Laps) -> LocalOutput:
        source, priority = LocalInput(segment.plain, tuple(ids)), self._request.priority

        def begin(_: Listen) -> asyncio.Future[LocalAnswer]:
            return local.model.begin(source, priority=priority, deadline=self._deadline, share=self._share)

        key = self._request.tenant, priority, local.model, segment.plain
        async with self._permits:
            answer = await self._shared.run(key, self._who, begin)
        laps.lap("edge_queue", max(laps.last, answer.began))  # a run that was joined may have begun before
        laps.lap("edge_run", answer.ended)
        return answer.output

    def _expected_ms(self, tokens: int) -> float:
        local = self._pair.local
        return local.model.expected_ms(tokens, self._request.priority, self._share) if local is not None else 0.0

    def _piece(self, local: Local, output: LocalOutput, laps: Laps, degraded: str = "") -> Piece:
        text = output.text if output.text is not None else local.target.decode(output.ids)
        laps.lap("detokenise", self._clock())
        return Piece(text, "segment", "edge", local.entry.name, degraded)

    # ---- far away ----------------------------------------------------------------------------------------------------

    async def _far(self, segment: Segment, ids: Sequence[int], laps: Laps, show: Show | None) -> Piece:
        """The origin's translation; ours, labelled, when it can't answer and the request doesn't insist on it.

        In a session the origin gets our draft, too: it costs milliseconds here and, with what the session said before,
        saves two thirds of the passes there.
        """
        drafted = await self._draft(segment, ids, laps) if self._hints(len(ids)) else None
        try:
            shown = show if self._request.tier != "refine" else None
            return await self._origin(segment, ids, laps, shown, drafted.ids if drafted else ())
        except NearsayError as error:
            if self._request.tier == "origin" or self._pair.local is None or self._final(error):
                raise
            laps.lap("origin_link", self._clock())
            if drafted:
                return msgspec.structs.replace(drafted.piece, degraded=error.code)
            return await self._local(segment, ids, laps, error.code)

    def _final(self, error: NearsayError) -> bool:
        """An error that an answer of ours doesn't mend: nobody is there, or the origin is to be asked again first."""
        return isinstance(error, Cancelled) or (error.code in STALE and not self._again)

    def _hints(self, tokens: int) -> bool:
        """Whether a segment that goes to an origin alone takes a draft of ours along."""
        interactive = self._request.session and self._request.priority == "interactive"
        if not interactive or self._pair.local is None or not self._wants_draft():
            return False
        return self._expected_ms(tokens) <= self._limits.draft_ms_max

    async def _origin(
        self, segment: Segment, ids: Sequence[int], laps: Laps, show: Show | None, draft: Sequence[int] = ()
    ) -> Piece:
        model = self._pair.origin
        if model is None:
            raise Unavailable(code="origin_unavailable")
        if model.source is not self._vocab():
            ids = model.source.encode(segment.plain)
        submit = submission(
            self._request,
            model,
            ids,
            draft,
            target_tokens_max=self._limits.target_tokens_max,
            bias=bias_of(self._request, segment, self._limits.session_bias),
        )

        grow = growing(model, show) if show is not None else None

        def begin(publish: Listen) -> asyncio.Future[Finished]:
            work = self._origins.submit(submit, deadline=self._origin_deadline(), on_ids=publish if grow else None)
            return self._shared.spawn(work, name="segment at an origin")

        async with self._permits:
            laps.lap("edge_queue", self._clock())
            finished = await self._shared.run((equal(submit), grow is not None), self._who, begin, grow)
        laps.far("origin_link", finished.accounted_ms, finished.stages_ms, self._clock())
        if finished.finish_reason == "length":
            return await self._halve(segment, laps)
        piece = answered(finished, model, segment, ids)
        laps.lap("detokenise", self._clock())
        return piece

    def _origin_deadline(self) -> float:
        """An origin gets all the time there is, less what the edge needs to answer in its place."""
        if self._request.tier == "origin" or self._pair.local is None:
            return self._deadline
        return self._deadline - self._limits.fallback_reserve_s(self._deadline - self._clock())

    # ---- both --------------------------------------------------------------------------------------------------------

    async def _both(self, segment: Segment, ids: Sequence[int], laps: Laps, show: Show | None) -> Piece:
        """A draft at once, then the origin's word on it; the draft stands, labelled, when the origin can't answer.

        Where the origin wants drafts to verify, it waits for ours; elsewhere both run side by side.
        """
        drafting, drafted = None, None
        if self._wants_draft():
            drafted = await self._draft(segment, ids, laps, show)
        else:
            drafting = self._tasks.spawn(self._draft(segment, ids, laps.fork(), show), name="draft")
        try:
            return await self._origin(segment, ids, laps, None, drafted.ids if drafted else ())
        except NearsayError as error:
            if self._final(error):
                raise
            laps.lap("origin_link", self._clock())
            if drafting is not None:
                drafted = await drafting
                laps.lap("edge_run", self._clock())
            if drafted:
                return msgspec.structs.replace(drafted.piece, degraded=error.code)
            return await self._local(segment, ids, laps, error.code)
        finally:
            if drafting is not None:
                drafting.cancel()

    async def _draft(
        self, segment: Segment, ids: Sequence[int], laps: Laps, show: Show | None = None
    ) -> Drafted | None:
        """Our translation, shown as a draft; None when there is none, and the origin has to answer without."""
        local, origin = self._pair.local, self._pair.origin
        assert local is not None and origin is not None
        try:
            output = await self._run(local, segment, ids, laps)
        except NearsayError:
            return None
        if output.truncated:
            return None
        piece = self._piece(local, output, laps)
        if show is not None:
            show(msgspec.structs.replace(piece, kind="draft"))
        same = output.ids and local.target.hash == origin.target.hash
        return Drafted(piece, output.ids if same else origin.target.encode(piece.text))

    def _wants_draft(self) -> bool:
        return self._pair.origin is not None and self._origins.wants_drafts(self._pair.origin.info.name)

    # ---- too long ----------------------------------------------------------------------------------------------------

    async def _halve(self, segment: Segment, laps: Laps) -> Piece:
        """The translation ran into a length bound: translate two halves instead, never give out a part as the whole."""
        tokens = len(self._vocab().encode(segment.plain))
        if tokens > SPLIT_TOKENS_MIN:
            return await self._split(segment, (tokens + 1) // 2, laps, None)
        return Piece(segment.text, degraded="untranslatable")

    async def _split(self, segment: Segment, tokens_max: int, laps: Laps, show: Show | None) -> Piece:
        """Translate a segment as several. Drafts are shown once every part has one; parts of parts show nothing."""
        parts = split_long(segment, self._vocab().encode, tokens_max)
        if len(parts) < 2:
            return Piece(segment.text, degraded="untranslatable")
        forks = [laps.fork() for _ in parts]
        shows = shows_of_parts(parts, show)
        work = [partial(self.translate, *each) for each in zip(parts, forks, shows, strict=True)]
        pieces = await together(self._tasks, work, name="part of a segment")
        laps.take(max(forks, key=lambda fork: fork.last))
        return merged(parts, pieces)

    def _vocab(self) -> Vocab:
        """The vocabulary that counts: of the model here, or of the origin's where there is none."""
        if self._pair.local is not None:
            return self._pair.local.source
        if self._pair.origin is None:
            raise Unavailable("no origin with this pair can be reached", code="origin_unavailable")
        return self._pair.origin.source
