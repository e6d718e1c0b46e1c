"""One request through the proxy: admission, pick an edge, attempts, answer. Every door enters here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from nearsay.runtime.clock import Clock
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.concurrency import Users
from nearsay.traffic.deadline import Deadline
from nearsay.wire.errors import Cancelled, DeadlineExceeded, InternalError, NearsayError, Overloaded, Unavailable
from nearsay.wire.messages import Message, Priority, ServedTier, Translated, Update, length_bucket
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Outcome, Permit, pair_name
from proxy.core.limits import AttemptLimits
from proxy.core.route import Route, affinity
from proxy.core.routing_config import DEFAULT_TENANT
from proxy.core.stages import Timeline
from proxy.core.transcript import Transcript
from proxy.edges import EdgePool
from proxy.gate import RETRY_AFTER_MS, Gate
from proxy.race import Try, race
from proxy.request import ValidRequest
from proxy.tenants import Tenants

Emit = Callable[[Update], Awaitable[None]]


@dataclass(slots=True)
class Call:
    """Who asks and since when: what a request carries besides its content."""

    id: str
    timeline: Timeline
    traceparent: str = ""
    tenant: str = DEFAULT_TENANT
    priority: Priority | None = None  # the class it is served in, once that is decided
    country: str = ""  # of the client, as far as it is known: ISO 3166-1 alpha-2
    region: str = ""  # which one answered
    routing: str = ""  # by which config, as Routing.label

    def lowered(self, asked: Priority) -> Priority | Literal[""]:
        """The class it was served in, if that isn't the one asked for."""
        return "" if self.priority is None or self.priority == asked else self.priority


class TranslateService:
    """Single owner of admission and of the retry budget."""

    def __init__(
        self,
        pool: EdgePool,
        gate: Gate,
        tenants: Tenants,
        limits: AttemptLimits,
        *,
        in_flight_max: int,
        lifecycle: Lifecycle,
        metrics: Metrics,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self.in_flight = 0
        self._pool = pool
        self._gate = gate
        self._tenants = tenants
        self._limits = limits
        self._in_flight_max = in_flight_max
        self._users = Users(limits.concurrency)
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        self._budget = RetryBudget(
            ratio=limits.retry_ratio, floor_per_s=limits.retry_floor_per_s, ttl_s=limits.retry_ttl_s, now=clock()
        )
        self._idle = asyncio.Event()
        self._idle.set()

    async def translate(self, request: ValidRequest, call: Call, emit: Emit | None = None) -> Translated:
        """Answer a request within its deadline. `emit` gets the updates of a streamed one, one at a time.

        Raises NearsayError; after the caller's cancellation the edge has been told, too.
        """
        deadline = Deadline.after_ms(request.deadline_ms, call.timeline.arrived)
        with self._admitted(call.tenant), self._tenants.permit(call, request) as request:
            try:
                async with asyncio.timeout(deadline.remaining_s(self._clock())):
                    return await self._attempts(request, call, emit, deadline)
            except TimeoutError:
                raise DeadlineExceeded(f"no answer within {request.deadline_ms:g} ms") from None

    def report(self, request: ValidRequest, answer: Translated, stages_ms: dict[str, float], e2e_ms: float) -> None:
        """Count one answered request's stages."""
        self._metrics.observe_stages(
            {**stages_ms, "e2e": e2e_ms},
            tier=served_tier(answer),
            bucket=length_bucket(request.chars),
            pair=pair_name(request.source, request.target),
        )

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    @contextmanager
    def _admitted(self, tenant: str) -> Iterator[None]:
        """A permit for one request, also while draining: it came on a connection that was open before. Raises
        Overloaded, Unavailable (draining) once that is over.

        Room is left for who comes next: one tenant alone can't fill the proxy for others. Where it is full a request
        still comes in when one of a tenant that has more of them waits to begin: that one is refused in its place.
        """
        if self._lifecycle.state == "stopped":
            raise Unavailable(code="draining", retry_after_ms=RETRY_AFTER_MS)
        full = self.in_flight >= self._in_flight_max
        room = self._gate.give_up(tenant) if full else self._users.has_room(tenant, self._in_flight_max, self._clock())
        if not room:
            raise Overloaded(f"{self.in_flight} requests are in flight", retry_after_ms=RETRY_AFTER_MS)
        self.in_flight += 1
        self._users.enter(tenant, self._clock())
        self._metrics.gauge("in_flight", self.in_flight)
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            self._users.leave(tenant)
            self._metrics.gauge("in_flight", self.in_flight)
            if not self.in_flight:
                self._idle.set()

    async def _attempts(self, request: ValidRequest, call: Call, emit: Emit | None, deadline: Deadline) -> Translated:
        self._budget.deposit(self._clock())
        features = request.features(tenant=call.tenant, country=call.country)
        route, work, transcript = Route(features, self._pool.fleet), request.work(call.tenant), Transcript()
        attempts = Attempts(self._limits, self._budget, deadline, work, affinity(features, request.texts[0]))

        async def pass_on(message: Message) -> None:
            await _pass_on(message, transcript, emit)

        def ended(permit: Permit, outcome: Outcome, answer: Translated | None) -> None:
            self._pool.ended(permit, outcome, route, answer)
            self._gate.freed()

        def attempt(permit: Permit) -> Try:
            message = request.message(
                request_id=call.id,
                tenant=call.tenant,
                tier=permit.tier,
                budget_ms=deadline.remaining_ms(permit.began),
                attempt=attempts.number,
                attempts_left=attempts.left,
                traceparent=call.traceparent,
                transcript=transcript,
            )
            peer = self._pool.peer(permit.endpoint)
            return Try(permit, attempts, peer, message, pass_on=pass_on, ended=ended, clock=self._clock)

        def second(stuck: bool) -> Try | None:
            permit = self._gate.second(attempts, route, stuck=stuck)
            self._metrics.count("stuck" if stuck else "late", hedged="no" if permit is None else "yes")
            return None if permit is None else attempt(permit)

        while True:
            permit = await self._gate.enter(attempts, route)
            first, late_s = attempt(permit), None
            if len(route.allowed()) > 1:  # there is somewhere else to go
                late_s = permit.endpoint.pool.late_s(work, permit.began)
            try:
                answer, winner = await race(first, second, late_s, self._tasks)
            except NearsayError as error:
                attempts.models = transcript.models
                if not attempts.again(error, route.allowed(), self._clock()):
                    raise
                self._metrics.count("retries", code=error.code)
                continue
            if winner is not first:
                self._metrics.count("hedges_won")
            call.timeline.sent, call.timeline.answered = winner.permit.began, winner.answered
            call.region, call.routing = winner.permit.endpoint.region, self._pool.fleet.label
            return answer


async def _pass_on(message: Message, transcript: Transcript, emit: Emit | None) -> None:
    """What an edge sent before its answer, to the client of a stream."""
    if not isinstance(message, Update):
        raise InternalError(f"an edge answered with {type(message).__name__}")
    shown = transcript.take(message) if emit is not None else None
    if emit is None or shown is None:
        return
    try:
        await emit(shown)
    except NearsayError:  # also a lost link: it is the client's, and no fault of the edge
        raise Cancelled("the client takes no more") from None


def served_tier(answer: Translated) -> ServedTier:
    """The tier that an answer's time is counted under: origin when any of it came from there."""
    return "origin" if any(translation.tier == "origin" for translation in answer.translations) else "edge"
