"""`AsyncClient`: translate and stream over the link, or over HTTP where no WebSocket can be had.

Decides which transport carries an attempt and whether a lost one is tried again. A streamed request is never sent again
once its first event was handed out. Invariant: a request ends by its deadline, whatever the transport does.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal, Self, get_args
from urllib.parse import urlsplit

from nearsay.client.direct import Direct
from nearsay.client.http import HttpTransport
from nearsay.client.link import LinkTransport
from nearsay.client.request import Options, Request, make_request
from nearsay.client.results import Done, Event, Result
from nearsay.client.retry import ATTEMPTS_MAX, backoff_s, default_budget
from nearsay.client.transport import Transport, TransportLost
from nearsay.traffic.budget import RetryBudget
from nearsay.traffic.deadline import Deadline
from nearsay.wire.errors import DeadlineExceeded, InternalError, InvalidRequest, NearsayError, Unavailable
from nearsay.wire.messages import Decoding, Priority, Stability, Tier

TransportName = Literal["auto", "link", "http"]
DEFAULT_URL = "http://127.0.0.1:8100"
LINK_WAIT_S = 3.0  # how long the first request waits for the link before it takes HTTP


class AsyncClient:
    """Client of one proxy, for one event loop. Requests share its connections; use one for the whole program.

    `url` is the proxy's (default: `NEARSAY_URL`, then http://127.0.0.1:8100). `transport`: "auto" takes the link and
    falls back to HTTP while there is none; "link" and "http" take only that. `direct`: ask the nearest edge without the
    proxy in between, where the proxy offers that, and the proxy whenever the edge can't answer. Every call may raise
    `InvalidRequest`, `Overloaded`, `Unavailable`, `DeadlineExceeded`, `RateLimited` or `InternalError`
    (`nearsay.errors`), each with a stable `code`.
    """

    def __init__(
        self,
        url: str = "",
        *,
        key: str = "",
        transport: TransportName = "auto",
        direct: bool = False,
        retries: RetryBudget | None = None,
        rng: random.Random | None = None,
    ) -> None:
        url = _checked_url(url or os.environ.get("NEARSAY_URL", DEFAULT_URL))
        if transport not in get_args(TransportName):
            raise InvalidRequest(f"transport must be one of {', '.join(get_args(TransportName))}")
        key = key or os.environ.get("NEARSAY_KEY", "")
        self.url = url
        self._link = None if transport == "http" else LinkTransport(url, key=key)
        self._http = None if transport == "link" else HttpTransport(url, key=key)
        self._retries = retries or default_budget(time.monotonic())
        self._rng = rng or random.Random()
        self._direct = Direct(url, key=key, rng=self._rng) if direct else None
        self._closed = False

    async def translate(
        self,
        text: str | Sequence[str],
        source: str,
        target: str,
        *,
        tier: Tier = "auto",
        priority: Priority = "interactive",
        deadline_ms: float | None = None,
        session: str = "",
        segments: bool = False,
        stability: Stability | None = None,
        decoding: Decoding | None = None,
    ) -> Result:
        """Translate a text or a list of texts, one translation for each. Cancelling the task stops the work.

        `deadline_ms` is for the whole call (default: 10 s, batch 120 s). `tier`: "edge" is fast, "origin" good, "auto"
        the edge's choice, "refine" a draft from the edge which the origin confirms or replaces. `session` ties the
        requests of one conversation together. `segments` asks for each segment with the span of its source.
        `stability` says how calm the translation of a text is that is still being typed, `decoding` asks for what only
        an origin can do: a beam, alternatives, an alignment of the words.
        """
        options = Options(tier, priority, deadline_ms, session, segments, stability, decoding)
        async with aclosing(self._events(self._request(text, source, target, options, stream=False))) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.result
        raise InternalError("the answer never came")

    def stream(
        self,
        text: str | Sequence[str],
        source: str,
        target: str,
        *,
        tier: Tier = "auto",
        priority: Priority = "interactive",
        deadline_ms: float | None = None,
        session: str = "",
        segments: bool = False,
        stability: Stability | None = None,
        decoding: Decoding | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Translate, with events as they come; the last is `Done`. `aclose()` (or leaving the loop) stops the work."""
        options = Options(tier, priority, deadline_ms, session, segments, stability, decoding)
        return self._events(self._request(text, source, target, options, stream=True))

    async def aclose(self) -> None:
        """Close the connections. Idempotent; requests in flight fail."""
        self._closed = True
        for transport in (self._direct, self._link, self._http):
            if transport is not None:
                await transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _request(
        self, text: str | Sequence[str], source: str, target: str, options: Options, *, stream: bool
    ) -> Request:
        return make_request(text, source, target, options, stream=stream, request_id=uuid.uuid4().hex, now=_now())

    async def _events(self, request: Request) -> AsyncGenerator[Event, None]:
        """Attempts, until one ends well; another one only while nothing of a lost one was handed out."""
        self._retries.deposit(_now())
        started = False
        if self._direct is not None and not self._closed and (near := self._direct.link(request)) is not None:
            first_by = self._direct.first_event_by(request)
            try:
                async with aclosing(near.exchange(request, 1)) as events:
                    while (event := await _next(events, request.deadline if started else first_by)) is not None:
                        started = True
                        yield event
                return
            except (TransportLost, NearsayError) as problem:
                error = problem.error if isinstance(problem, TransportLost) else problem
                self._direct.failed(error)
                if started:
                    raise error from problem
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                transport = await self._choose(request)
                async with aclosing(transport.exchange(request, attempt)) as events:
                    while (event := await _next(events, request.deadline)) is not None:
                        started = True
                        yield event
                return
            except TransportLost as lost:
                if started or attempt == ATTEMPTS_MAX or not self._retries.withdraw(_now()):
                    raise lost.error from lost.__cause__
            wait_s = backoff_s(attempt + 1, self._rng.random())
            await asyncio.sleep(min(wait_s, request.deadline.remaining_s(_now())))

    async def _choose(self, request: Request) -> Transport:
        if self._closed:
            raise Unavailable("the client is closed")
        wait_s = min(LINK_WAIT_S, request.deadline.remaining_s(_now()))
        if self._http is None:
            assert self._link is not None
            if not self._link.ready:
                await self._link.wait_ready(wait_s)
            return self._link
        if self._link is not None and (self._link.ready or await self._link.wait_settled(wait_s)):
            return self._link
        return self._http


async def _next(events: AsyncGenerator[Event, None], deadline: Deadline) -> Event | None:
    """The next event, None after the last. Raises DeadlineExceeded at `deadline`."""
    try:
        # Around each event, not around the loop: a generator may not hold a timeout open while its consumer runs.
        async with asyncio.timeout_at(deadline.at):
            return await anext(events)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise DeadlineExceeded("no answer within the deadline") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidRequest(f"the proxy's URL must look like {DEFAULT_URL}")
    return url.rstrip("/")
