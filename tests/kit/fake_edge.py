"""A scripted edge worker: a real LinkServer, over a socket or in memory, whose answers a test decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import LinkServer, Stream, Transport, memory_pair
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError
from nearsay.wire.limits import LinkLimits
from nearsay.wire.messages import (
    Hello,
    LoadReport,
    ModelInfo,
    SegmentText,
    ServedTier,
    State,
    Translate,
    Translated,
    TranslatedText,
    Update,
)

Script = Callable[[Stream, Translate], Awaitable[None]]


def model(source: str, target: str, tier: ServedTier = "edge") -> ModelInfo:
    """A model that is only a name."""
    return ModelInfo(f"{source}-{target}-{tier}", "1", source, target, tier, "s", "t")


def translation(text: str, tier: ServedTier = "edge", *, segments: bool = False) -> TranslatedText:
    """What the fake makes of a text: the same in capitals."""
    whole = SegmentText(text.upper(), 0, len(text), tier, "fake@1")
    return TranslatedText(text.upper(), "en", tier, "fake@1", segments=(whole,) if segments else ())


def translated(message: Translate, *, accounted_ms: float = 0.05) -> Translated:
    """The final answer to a request."""
    tier: ServedTier = "origin" if message.tier in ("origin", "refine") else "edge"
    texts = tuple(translation(text, tier, segments=message.segments) for text in message.texts)
    return Translated(texts, {"edge_run": accounted_ms}, accounted_ms)


async def echo(stream: Stream, message: Translate) -> None:
    """Answer at once; streamed, a segment a word, each with a partial before it."""
    if message.stream:
        for item, text in enumerate(message.texts):
            for number, word in enumerate(text.split()):
                gap = " " if number else ""
                end = len(word)
                await stream.send(Update(item, number, 0, "partial", word[:1].upper(), gap, 0, end, "edge", "fake@1"))
                await stream.send(Update(item, number, 1, "segment", word.upper(), gap, 0, end, "edge", "fake@1"))
    await stream.finish(translated(message))


async def silence(stream: Stream, message: Translate) -> None:
    """Never answer; ends when it is cancelled."""
    await asyncio.Event().wait()


def refuse(error: NearsayError) -> Script:
    """Reject every request."""

    async def script(stream: Stream, message: Translate) -> None:
        raise error

    return script


class FakeEdge:
    """One edge worker. `requests` are all that came, `cancelled` counts those that were cancelled before their end."""

    def __init__(
        self,
        script: Script = echo,
        *,
        models: Sequence[ModelInfo] = (model("en", "de"),),
        origin_pairs: Sequence[str] = (),
        instance: str = "fake",
        secret: str = "",
        clock: Clock = time.monotonic,
    ) -> None:
        self.script = script
        self.requests: list[Translate] = []
        self.cancelled = 0
        self.url = ""
        self._hello = Hello("edge", instance=instance, models=tuple(models), origin_pairs=tuple(origin_pairs))
        self._tasks = Tasks()
        self._clock = clock
        self._secret = secret
        self._links: list[Transport] = []
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.server = self._new_server()

    async def start(self, port: int = 0) -> str:
        """Listen on loopback; the link's URL."""
        app = web.Application()
        app.router.add_get("/link", self.server.handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"ws://{host}:{bound}/link"
        return self.url

    async def connect(self, url: str) -> Transport:
        """`Connect` in memory."""
        near, far = memory_pair()
        self._links.append(far)
        self._tasks.spawn(self.server.serve(far), name="fake edge link")
        return near

    def publish(self, state: State = "ready", *, origin_ready: Sequence[str] = ()) -> None:
        """Send a load report."""
        self.server.publish(LoadReport(state, origin_ready=tuple(origin_ready)))

    def asked(self) -> bool:
        """Whether any request has come."""
        return bool(self.requests)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until `condition` holds; looked at whenever a request comes, ends or is cancelled."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def break_links(self) -> None:
        """Lose every link in memory, as a network does; peers may connect again."""
        links, self._links = self._links, []
        for link in links:
            await link.close()

    async def close(self) -> None:
        """Go away without a word, as a killed process does."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._tasks.close()

    def _new_server(self) -> LinkServer:
        return LinkServer(
            hello=lambda: self._hello,
            handler=self._serve,
            tasks=self._tasks,
            limits=LinkLimits(),
            clock=self._clock,
            secret=self._secret,
        )

    async def _serve(self, stream: Stream) -> None:
        message = stream.message
        assert isinstance(message, Translate)
        self.requests.append(message)
        self._changed.set()
        try:
            await self.script(stream, message)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._changed.set()
