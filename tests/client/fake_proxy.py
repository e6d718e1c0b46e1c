"""A proxy in miniature for tests of the SDK: one behaviour, served over the link and over HTTP.

What it does is asked for by the text: "reject CODE", "hang", "drop" (breaks the transport on a request's first try),
"drain" (refuses the first try), "drop after one" (breaks it after one event), "short" (one translation too few),
"restart" (a stream that begins twice); anything else comes back in capitals.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from aiohttp import web

from nearsay.runtime.link import LinkLimits, LinkServer, Stream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError, from_code, http_status, title
from nearsay.wire.messages import Hello, SegmentText, Translate, Translated, TranslatedText, Update, WordPair

STAGES_MS = {"parse": 0.1, "edge_run": 5.0}
MODEL = "en-de-student@1"
PROXY = Hello(role="proxy")


class Dropped(Exception):
    """The transport is to break now."""


class FakeProxy:
    """Start with `serving()`. `requests` are all that came in; `cancelled` counts hanging ones whose caller left."""

    def __init__(self, *, link: bool = True, http: bool = True, key: str = "", hello: Hello = PROXY) -> None:
        self.requests: list[Translate] = []
        self.ways: list[str] = []
        self.cancelled = 0
        self.hangs = threading.Semaphore(0)  # released once per request that hangs
        self.left = asyncio.Event()
        self.url = ""
        self._key = key
        self._tasks = Tasks()
        self._dropped: set[str] = set()
        self._transports: list[asyncio.Transport] = []
        self._server = LinkServer(
            hello=lambda: hello,
            handler=self._on_stream,
            tasks=self._tasks,
            limits=LinkLimits(),
            clock=time.monotonic,
            secret=key,
        )
        self._app = web.Application()
        if link:
            self._app.router.add_get("/link", self._on_link)
        if http:
            self._app.router.add_post("/v1/translate", self._on_post)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[FakeProxy]:
        runner = web.AppRunner(self._app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await self._tasks.close()
            await runner.cleanup()

    def break_links(self) -> None:
        """Cut every link's connection."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    async def answers(self, request: Translate) -> AsyncIterator[Update | Translated]:
        self.requests.append(request)
        first = request.texts[0]
        if first.startswith("reject "):
            raise from_code(first.removeprefix("reject "), "as asked", retry_after_ms=250.0)
        if first == "drain" and first not in self._dropped:
            self._dropped.add(first)
            raise from_code("draining")
        if first.startswith("hang"):
            await self._hang()
        if first == "drop" and first not in self._dropped:
            self._dropped.add(first)
            raise Dropped
        if request.stream:
            if first == "restart":
                yield Update(0, 0, 0, "partial", "OLD", model="old@1")
                yield Update(0, 0, 0, "restart", "")
            for update in self._updates(request):
                yield update
                if first == "drop after one":
                    raise Dropped
        texts = request.texts[:-1] if first == "short" else request.texts
        yield Translated(tuple(_translated(text, request) for text in texts), STAGES_MS, 5.0)

    async def _hang(self) -> None:
        self.hangs.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1
            self.left.set()

    def _updates(self, request: Translate) -> list[Update]:
        kinds = ("draft", "partial", "segment") if request.tier == "refine" else ("partial", "segment")
        return [
            Update(item, 0, revision, kind, _capital(text, request), "", 0, len(text), "edge", MODEL)
            for item, text in enumerate(request.texts)
            for revision, kind in enumerate(kinds)
        ]

    # ---- the link ----------------------------------------------------------------------------------------------------

    async def _on_link(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.append(request.transport)
        return await self._server.handle(request)

    async def _on_stream(self, stream: Stream) -> None:
        message = stream.message
        assert isinstance(message, Translate)
        self.ways.append("link")
        try:
            async for answer in self.answers(message):
                if isinstance(answer, Translated):
                    await stream.finish(answer)
                else:
                    await stream.send(answer)
        except Dropped:
            await asyncio.sleep(0)
            self.break_links()

    # ---- HTTP --------------------------------------------------------------------------------------------------------

    async def _on_post(self, request: web.Request) -> web.StreamResponse:
        self.ways.append("http")
        if self._key and request.headers.get("Authorization") != f"Bearer {self._key}":
            return _problem(from_code("unauthorised"))
        body = await request.json()
        message = Translate(
            request_id=uuid.uuid4().hex,
            texts=tuple([body["text"]] if isinstance(body["text"], str) else body["text"]),
            source=body["source"],
            target=body["target"],
            tier=body["tier"],
            priority=body["priority"],
            budget_ms=body["deadline_ms"],
            stream=body["stream"],
            segments=body["segments"],
            session=body["session"],
        )
        try:
            return await (self._events(request, message) if message.stream else self._whole(message))
        except NearsayError as error:
            return _problem(error)
        except Dropped:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

    async def _whole(self, message: Translate) -> web.Response:
        async for answer in self.answers(message):
            assert isinstance(answer, Translated)
            return web.Response(body=_json(answer, message), content_type="application/json")
        raise AssertionError

    async def _events(self, request: web.Request, message: Translate) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async for answer in self.answers(message):
            if not response.prepared:
                await response.prepare(request)
                await response.write(b": heartbeat\n\n")
            kind, data = ("done", _json(answer, message)) if isinstance(answer, Translated) else _update(answer)
            await response.write(f"event: {kind}\ndata: ".encode() + data + b"\n\n")
        return response


@contextmanager
def in_thread(proxy: FakeProxy | None = None) -> Iterator[FakeProxy]:
    """A fake proxy on a loop in another thread, for code that blocks."""
    started: queue.Queue[tuple[FakeProxy, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        async with (proxy or FakeProxy()).serving() as fake:
            started.put((fake, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    fake, loop, stop = started.get(timeout=10)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def _capital(text: str, request: Translate) -> str:
    return f"{text.upper()} [{request.target}]"


def _translated(text: str, request: Translate) -> TranslatedText:
    whole = SegmentText(_capital(text, request), 0, len(text), "edge", MODEL)
    segments = (whole,) if request.segments else ()
    degraded = request.tier == "origin"
    reason = "origin_unavailable" if degraded else ""
    answer = TranslatedText(_capital(text, request), request.source, "edge", MODEL, segments, degraded, reason)
    if request.stability is not None:
        answer = msgspec.structs.replace(answer, bias=request.stability.bias or 0.0, masked=request.stability.mask)
    if request.decoding is not None:
        others = tuple(f"{_capital(text, request)} {number}" for number in range(request.decoding.alternatives))
        pairs = (WordPair(0, 1, 0, 2), WordPair(0, 1, 3, 4)) if request.decoding.alignment else ()
        answer = msgspec.structs.replace(answer, alternatives=others, alignment=pairs)
    return answer


def _named(struct: msgspec.Struct) -> dict[str, object]:
    return {field: getattr(struct, field) for field in struct.__struct_fields__}


def _json(answer: Translated, request: Translate) -> bytes:
    translations = [
        _named(one) | {"segments": [_named(segment) for segment in one.segments]} for one in answer.translations
    ]
    return msgspec.json.encode(
        {"translations": translations, "stages_ms": answer.stages_ms, "request_id": request.request_id, "new": 1}
    )


def _update(update: Update) -> tuple[str, bytes]:
    return update.kind, msgspec.json.encode(_named(update))


def _problem(error: NearsayError) -> web.Response:
    problem = {"type": "about:blank", "title": title(error), "status": http_status(error), "code": error.code}
    problem |= {"detail": error.detail, "retry_after_ms": error.retry_after_ms}
    return web.Response(
        status=http_status(error), body=msgspec.json.encode(problem), content_type="application/problem+json"
    )
