"""The link door: SDKs open `Translate` on `GET /link` and enter the same service as HTTP clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import Stream
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest, NearsayError
from nearsay.wire.messages import Translate
from proxy.core.limits import RequestLimits
from proxy.core.stages import Timeline
from proxy.edges import EdgePool
from proxy.request import from_message, harmless_id, harmless_trace
from proxy.service import Call, TranslateService
from proxy.tenants import Tenants


class LinkDoor:
    """Handler of the streams that SDKs open."""

    def __init__(
        self,
        service: TranslateService,
        pool: EdgePool,
        tenants: Tenants,
        limits: RequestLimits,
        *,
        metrics: Metrics,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._service = service
        self._pool = pool
        self._tenants = tenants
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id

    async def serve(self, stream: Stream) -> None:
        """Answer one stream: updates when it asks for them, then one `Translated`. NearsayError becomes a reject."""
        try:
            await self._serve(stream)
        except NearsayError as error:
            self._count(error.code)
            raise
        except asyncio.CancelledError:
            self._count("cancelled")
            raise
        self._count("ok")

    async def _serve(self, stream: Stream) -> None:
        timeline = Timeline(arrived=self._clock())
        message = stream.message
        if not isinstance(message, Translate):
            raise InvalidRequest(f"a proxy takes Translate, not {type(message).__name__}")
        tenant = self._tenants.of_link(stream.who)  # not the message's: nobody chooses whose limits they use
        valid = from_message(message, self._limits, self._pool.catalogue)
        timeline.parsed = self._clock()
        request_id = harmless_id(message.request_id) or self._new_id()
        call = Call(
            id=request_id,
            timeline=timeline,
            traceparent=harmless_trace(message.traceparent),
            tenant=tenant,
            country=stream.context,
        )
        answer = await self._service.translate(valid, call, stream.send if valid.stream else None)
        done = self._clock()
        stages_ms, e2e_ms = timeline.stages_ms(answer, done), timeline.e2e_ms(done)
        told = msgspec.structs.replace(
            answer,
            stages_ms=stages_ms,
            accounted_ms=e2e_ms,
            region=call.region,
            routing=call.routing,
            priority=call.lowered(valid.priority),
        )
        await stream.finish(told)
        self._service.report(valid, answer, stages_ms, e2e_ms)

    def _count(self, code: str) -> None:
        self._metrics.count("requests", code=code, door="link")
