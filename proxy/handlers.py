"""The HTTP door: what comes in is validated once into a typed request, what goes out is JSON, events or a problem.

No policy lives here, and no middleware runs: a short text's whole share of the proxy is well under a millisecond.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import LinkServer
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import Cancelled, InternalError, InvalidRequest, NearsayError, Unavailable, http_status
from nearsay.wire.hops import TrustedHops
from nearsay.wire.messages import Translated, Update
from proxy import compress, render, sse
from proxy.body import read_body
from proxy.client_address import ClientAddresses
from proxy.config import ProxyConfig
from proxy.core.stages import Timeline, server_timing
from proxy.edges import EdgePool
from proxy.location import UNKNOWN, Locator, Place
from proxy.problem import problem_bytes, problem_headers
from proxy.request import ValidRequest, from_json, harmless_id, harmless_trace
from proxy.route_door import RouteDoor
from proxy.service import Call, TranslateService
from proxy.tenants import Tenants

log = logging.getLogger(__name__)

Answering = Callable[[web.Request, Call], Awaitable[web.StreamResponse]]
METHODS = {
    "/v1/translate": ("POST",),
    "/v1/languages": ("GET", "HEAD"),
    "/v1/models": ("GET", "HEAD"),
    "/v1/route": ("GET",),
    "/link": ("GET",),
}
JSON = "application/json"


class Handlers:
    """aiohttp handlers over one `TranslateService`."""

    def __init__(
        self,
        service: TranslateService,
        pool: EdgePool,
        link: LinkServer,
        tenants: Tenants,
        config: ProxyConfig,
        route: RouteDoor,
        locator: Locator,
        *,
        metrics: Metrics,
        tasks: Tasks,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._service = service
        self._pool = pool
        self._link = link
        self._config = config
        self._route_door = route
        self._addresses = ClientAddresses(TrustedHops(config.trusted_hops), config.hop_header)
        self._locator = locator
        self._tenants = tenants
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        self._new_id = new_id

    def routes(self) -> list[web.RouteDef]:
        """Routes of the service port; the last one answers whatever the others don't."""
        return [
            web.post("/v1/translate", self.translate),
            web.get("/v1/languages", self.languages),
            web.get("/v1/models", self.models),
            web.get("/v1/route", self.route, allow_head=False),
            web.get("/link", self.link, allow_head=False),
            web.route("*", "/{path:.*}", self.elsewhere),
        ]

    async def translate(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/translate."""
        return await self._guarded(request, self._translate)

    async def languages(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/languages."""
        return await self._guarded(request, self._languages)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models."""
        return await self._guarded(request, self._models)

    async def route(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/route."""
        return await self._guarded(request, self._route)

    async def link(self, request: web.Request) -> web.StreamResponse:
        """GET /link: an SDK's WebSocket. Its key or the secret is in its hello."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            error = InvalidRequest("a WebSocket is spoken here: open it as ws://.../link")
            return self._refusal(error, self._call(request))
        try:
            return await self._link.handle(request, context=self._place(request).country)
        except web.HTTPServiceUnavailable:
            return self._refusal(Unavailable("no new links now"), self._call(request))
        except web.HTTPException as error:
            return self._refusal(InvalidRequest(f"no WebSocket handshake: {error.reason}"), self._call(request))

    async def elsewhere(self, request: web.Request) -> web.StreamResponse:
        """Every other path and method: 404, 405, and OPTIONS."""
        allowed = METHODS.get(request.path)
        if allowed is not None and request.method == "OPTIONS":
            return web.Response(status=204, headers={"Allow": ", ".join([*allowed, "OPTIONS"])})
        code = "not_found" if allowed is None else "method_not_allowed"
        call = self._call(request)
        response = self._refusal(InvalidRequest(code=code), call)
        if allowed is not None:
            response.headers["Allow"] = ", ".join([*allowed, "OPTIONS"])
        return response

    async def _translate(self, request: web.Request, call: Call) -> web.StreamResponse:
        body = await read_body(request, self._config.request)
        wants_events = sse.MEDIA_TYPE in request.headers.get("Accept", "")
        valid = from_json(body, self._config.request, self._pool.catalogue, stream=wants_events)
        call.timeline.parsed = self._clock()
        if valid.stream:
            return await self._stream(request, valid, call)
        answer = await self._service.translate(valid, call)
        body, stages_ms, rendered = self._render(valid, answer, call)
        headers = self._headers(call)
        packed = await self._encode(request, body, headers)
        if packed is not body:
            rendered = self._clock()
            stages_ms = call.timeline.stages_ms(answer, rendered)
        e2e_ms = call.timeline.e2e_ms(rendered)
        headers["Server-Timing"] = server_timing(stages_ms, e2e_ms)
        response = await self._send(request, packed, headers)
        self._service.report(valid, answer, stages_ms, e2e_ms)
        return response

    async def _stream(self, request: web.Request, valid: ValidRequest, call: Call) -> web.StreamResponse:
        """Answer with events. A failure before the first one is raised: it can still be a status."""
        async with sse.EventStream(
            request, lambda: self._headers(call), self._config.answer, tasks=self._tasks, clock=self._clock
        ) as events:

            async def emit(update: Update) -> None:
                await events.send(update.kind, render.update(update))

            try:
                answer = await self._service.translate(valid, call, emit)
            except NearsayError as error:
                if not events.started or isinstance(error, Cancelled):
                    raise
                self._count(error.code)
                await events.send("error", problem_bytes(error, call.id))
            else:
                body, stages_ms, rendered = self._render(valid, answer, call)
                await events.send("done", body)
                self._service.report(valid, answer, stages_ms, call.timeline.e2e_ms(rendered))
                self._count("ok")
            await events.finish()
        return events.response

    async def _languages(self, request: web.Request, call: Call) -> web.StreamResponse:
        return await self._plain(request, render.languages(self._pool.catalogue), call)

    async def _models(self, request: web.Request, call: Call) -> web.StreamResponse:
        return await self._plain(request, render.models(self._pool.catalogue), call)

    async def _route(self, request: web.Request, call: Call) -> web.StreamResponse:
        address, place = self._addresses.of(request), self._place(request)
        return await self._plain(
            request, self._route_door.answer(request.query, call.tenant, address, place, call.id), call
        )

    async def _plain(self, request: web.Request, body: bytes, call: Call) -> web.StreamResponse:
        headers = {"X-Request-ID": call.id}
        return await self._send(request, await self._encode(request, body, headers), headers)

    def _headers(self, call: Call) -> dict[str, str]:
        """What every answer to a request has."""
        return {"X-Request-ID": call.id, **self._tenants.headers(call)}

    def _render(self, request: ValidRequest, answer: Translated, call: Call) -> tuple[bytes, dict[str, float], float]:
        """The answer's JSON, its stages and the instant they end at."""
        translations = render.translations(answer)
        rendered = self._clock()
        stages_ms = call.timeline.stages_ms(answer, rendered)
        lowered = call.lowered(request.priority)
        body = render.envelope(
            translations, stages_ms, call.id, region=call.region, routing=call.routing, lowered_to=lowered
        )
        return body, stages_ms, rendered

    async def _encode(self, request: web.Request, body: bytes, headers: dict[str, str]) -> bytes:
        """The body in the coding that the client likes best, if it is large enough to gain by it."""
        if len(body) < self._config.answer.compress_bytes_min:
            return body
        coding = compress.negotiate(request.headers.get("Accept-Encoding", ""))
        if coding is None:
            return body
        headers["Content-Encoding"] = coding
        return await compress.compress(body, coding, self._config.answer)

    async def _send(self, request: web.Request, body: bytes, headers: dict[str, str]) -> web.Response:
        """Headers and body in one write, waited for within the write timeout."""
        headers |= {"Content-Type": JSON, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        response = web.Response(body=body, headers=headers)
        await sse.bounded_write(request, self._config.answer.write_timeout_s, _write(request, response))
        self._count("ok")
        return response

    async def _guarded(self, request: web.Request, answer: Answering) -> web.StreamResponse:
        """Run a handler; every way it can fail becomes a problem, counted by code."""
        call = self._call(request)
        try:
            call.tenant = self._tenants.of_header(request.headers.get("Authorization", ""))
            return await answer(request, call)
        except NearsayError as error:
            return self._refusal(error, call)
        except asyncio.CancelledError:
            self._count("cancelled")
            raise
        except Exception:
            log.exception("request %s failed", call.id)
            return self._refusal(InternalError(), call)

    def _refusal(self, error: NearsayError, call: Call) -> web.Response:
        self._count(error.code)
        headers = problem_headers(error, call.id) | self._tenants.headers(call)
        if error.code == "unsupported_media_type":
            headers["Accept-Encoding"] = compress.ACCEPT_ENCODING
        return web.Response(status=http_status(error), body=problem_bytes(error, call.id), headers=headers)

    def _call(self, request: web.Request) -> Call:
        """Identity and start of a request; a caller's own ids are taken when they are harmless."""
        timeline = Timeline(arrived=self._clock())
        return Call(
            id=harmless_id(request.headers.get("X-Request-ID", "")) or self._new_id(),
            timeline=timeline,
            traceparent=harmless_trace(request.headers.get("traceparent", "")),
            country=self._place(request).country,
        )

    def _place(self, request: web.Request) -> Place:
        return self._locator.locate(self._addresses.of(request)) if self._locator.wanted else UNKNOWN

    def _count(self, code: str) -> None:
        self._metrics.count("requests", code=code, door="http")


async def _write(request: web.Request, response: web.Response) -> None:
    await response.prepare(request)
    await response.write_eof()
