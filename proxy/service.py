"""One request through the proxy: admission, pick an edge, attempts, answer. Every door enters here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from nearsay.runtime.clock import Clock
from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import EndOfStream
from nearsay.runtime.metrics import Metrics
from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.wire.errors import Cancelled, DeadlineExceeded, InternalError, NearsayError, Overloaded, Unavailable
from nearsay.wire.messages import Message, Priority, ServedTier, Translated, Update, length_bucket
from proxy.core.attempts import Attempts
from proxy.core.endpoint import Endpoint, Outcome, pair_name
from proxy.core.limits import AttemptLimits
from proxy.core.route import Route, affinity
from proxy.core.routing_config import DEFAULT_TENANT
from proxy.core.stages import Timeline
from proxy.edges import EdgePool
from proxy.request import ValidRequest
from proxy.tenants import Tenants

Emit = Callable[[Update], Awaitable[None]]
RETRY_AFTER_MS = 1000.0


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
        tenants: Tenants,
        limits: AttemptLimits,
        *,
        in_flight_max: int,
        lifecycle: Lifecycle,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.in_flight = 0
        self._pool = pool
        self._tenants = tenants
        self._limits = limits
        self._in_flight_max = in_flight_max
        self._lifecycle = lifecycle
        self._metrics = metrics
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
        with self._admitted(), self._tenants.permit(call, request) as request:
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
    def _admitted(self) -> Iterator[None]:
        """A permit for one request, also while draining: it came on a connection that was open before. Raises
        Overloaded, Unavailable (draining) once that is over."""
        if self._lifecycle.state == "stopped":
            raise Unavailable(code="draining", retry_after_ms=RETRY_AFTER_MS)
        if self.in_flight >= self._in_flight_max:
            raise Overloaded(f"{self.in_flight} requests are in flight", retry_after_ms=RETRY_AFTER_MS)
        self.in_flight += 1
        self._metrics.gauge("in_flight", self.in_flight)
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            self._metrics.gauge("in_flight", self.in_flight)
            if not self.in_flight:
                self._idle.set()

    async def _attempts(self, request: ValidRequest, call: Call, emit: Emit | None, deadline: Deadline) -> Translated:
        self._budget.deposit(self._clock())
        features = request.features(tenant=call.tenant, country=call.country)
        route = Route(features, self._pool.fleet)
        attempts = Attempts(
            self._limits,
            self._budget,
            deadline,
            pair=features.pair,
            tier=request.tier,
            affinity=affinity(features, request.texts[0]),
            session=bool(request.session),
        )
        while True:
            endpoint = await self._pool.choose(attempts, route)
            try:
                return await self._attempt(endpoint, attempts, route, request, call, emit)
            except NearsayError as error:
                if not attempts.again(error, route.allowed(), self._clock()):
                    raise
                self._metrics.count("retries", code=error.code)

    async def _attempt(
        self,
        endpoint: Endpoint,
        attempts: Attempts,
        route: Route,
        request: ValidRequest,
        call: Call,
        emit: Emit | None,
    ) -> Translated:
        """One try at one edge; whatever ends it, the edge's stream and the endpoint's permit end with it."""
        outcome: Outcome = "ignored"
        stream = answer = None
        sent = self._clock()
        endpoint.started()
        try:
            asked = request.message(
                request_id=call.id,
                budget_ms=attempts.deadline.remaining_ms(sent),
                attempt=attempts.number,
                attempts_left=attempts.left,
                traceparent=call.traceparent,
                tenant=call.tenant,
            )
            stream = await self._pool.peer(endpoint).open(asked)
            while not isinstance(message := await stream.receive(), Translated):
                await self._pass_on(message, attempts, emit)
            outcome, answer = "ok", message
        except EndOfStream:
            outcome = "failed"
            raise InternalError("an edge ended without an answer") from None
        except NearsayError as error:
            outcome = "failed" if error.retryable or isinstance(error, InternalError | DeadlineExceeded) else "ignored"
            raise
        except asyncio.CancelledError:  # the client left, or the deadline did it
            outcome = "failed" if attempts.deadline.expired(self._clock()) else "ignored"
            raise
        finally:
            now = self._clock()
            if stream is not None:
                stream.cancel()
            self._pool.ended(endpoint, outcome, route, answer, elapsed_s=now - sent)
        call.timeline.sent, call.timeline.answered = sent, now
        call.region, call.routing = endpoint.region, self._pool.fleet.label
        return answer

    async def _pass_on(self, message: Message, attempts: Attempts, emit: Emit | None) -> None:
        if not isinstance(message, Update):
            raise InternalError(f"an edge answered with {type(message).__name__}")
        if emit is None:
            return
        attempts.streamed = True
        try:
            await emit(message)
        except NearsayError:  # also a lost link: it is the client's, and no fault of the edge
            raise Cancelled("the client takes no more") from None


def served_tier(answer: Translated) -> ServedTier:
    """The tier that an answer's time is counted under: origin when any of it came from there."""
    return "origin" if any(translation.tier == "origin" for translation in answer.translations) else "edge"
