"""`Client`: the synchronous twin of `AsyncClient`, which it runs on an event loop in a thread of its own.

Safe to use from many threads at once: they share the connections. Not to be used from a coroutine: it blocks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from typing import Any, Self, TypeVar

from nearsay.client.aio import AsyncClient, TransportName
from nearsay.client.results import Event, Result
from nearsay.wire.errors import Unavailable
from nearsay.wire.messages import Decoding, Priority, Stability, Tier

T = TypeVar("T")


class Client:
    """Client of one proxy. Arguments and errors are those of `AsyncClient`. Close it, or use it in a `with` block."""

    def __init__(
        self, url: str = "", *, key: str = "", transport: TransportName = "auto", direct: bool = False
    ) -> None:
        self._client = AsyncClient(url, key=key, transport=transport, direct=direct)
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()  # nothing is submitted once `_closed` is set
        self._closed = False
        # A daemon: a program that forgets to close its client still ends.
        self._thread = threading.Thread(target=self._loop.run_forever, name="nearsay-client", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return self._client.url

    def translate(
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
        """Translate a text or a list of texts. KeyboardInterrupt while waiting tells the proxy to stop."""
        return self._run(
            self._client.translate(
                text,
                source,
                target,
                tier=tier,
                priority=priority,
                deadline_ms=deadline_ms,
                session=session,
                segments=segments,
                stability=stability,
                decoding=decoding,
            )
        )

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
    ) -> Generator[Event, None, None]:
        """Translate, with events as they come; the last is `Done`. `close()` (or leaving the loop) stops the work."""

        async def start() -> AsyncGenerator[Event, None]:
            return self._client.stream(
                text,
                source,
                target,
                tier=tier,
                priority=priority,
                deadline_ms=deadline_ms,
                session=session,
                segments=segments,
                stability=stability,
                decoding=decoding,
            )

        events = self._run(start())
        try:
            while (event := self._run(_advance(events))) is not None:
                yield event
        finally:
            if not self._closed:
                self._run(events.aclose())

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent; calls waiting in other threads raise Unavailable."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coro: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                coro.close()
                raise Unavailable("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coro, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unavailable("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    async def _shut_down(self) -> None:
        await self._client.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


async def _advance(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)
