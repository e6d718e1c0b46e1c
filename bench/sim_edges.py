"""Edges that exist in virtual time only: slots, a queue, a service time, and what can go wrong with them.

The proxy sees them as it sees real ones, through `proxy.edges.EdgePeer`. A request's service time depends on the seed,
the edge and the request alone, so that two arms of an experiment meet the same luck.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

from nearsay.wire.errors import Cancelled, LinkLost, Unavailable
from nearsay.wire.messages import Hello, LoadReport, Message, ModelInfo, Translate, Translated, TranslatedText

LINK_S = 0.0005  # one way
MODEL = ModelInfo("en-de-sim", "1", "en", "de", "edge", "s", "t")


class SimStream:
    """One request at an edge, as far as the proxy uses a stream."""

    def __init__(self, edge: SimEdge, message: Translate) -> None:
        self.message = message
        self.answer: asyncio.Future[Translated] = asyncio.get_running_loop().create_future()
        self.came_at = 0.0
        self.began_at: float | None = None
        self._edge = edge

    async def receive(self) -> Message:
        """The answer. Raises what ended it."""
        return await self.answer

    def cancel(self) -> None:
        """Tell the edge, which hears of it a link's delay later."""
        if not self.answer.done():
            self.answer.set_exception(Cancelled())
            self.answer.exception()  # heard of
            asyncio.get_running_loop().call_later(LINK_S, self._edge.give_up, self)


class SimEdge:
    """`slots` requests at once, the others in a queue. `busy_s` is all the time that slots were held."""

    def __init__(
        self, number: int, *, seed: int, slots: int, service_s: float, stall_share: float = 0.0, stall: float = 20.0
    ) -> None:
        self.url = f"sim://{number}"
        self.ready = True
        self.hello: Hello | None = Hello("edge", instance="sim", models=(MODEL,))
        self.load: LoadReport | None = None
        self.rtt_s: float | None = 2 * LINK_S
        self.slow = 1.0  # factor on every service time
        self.silent = False  # takes requests and never answers
        self.busy_s = 0.0
        self._number, self._seed = number, seed
        self._slots, self._service_s = slots, service_s
        self._stall_share, self._stall = stall_share, stall
        self._running: dict[SimStream, asyncio.TimerHandle | None] = {}
        self._waiting: deque[SimStream] = deque()
        self._callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call when it comes or goes."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """It is there already."""

    async def close(self) -> None:
        """End what runs."""
        self.kill()

    async def open(self, message: Message) -> SimStream:
        """A request. Raises Unavailable."""
        assert isinstance(message, Translate)
        if not self.ready:
            raise Unavailable("not connected")
        stream = SimStream(self, message)
        asyncio.get_running_loop().call_later(LINK_S, self._came, stream)
        return stream

    def kill(self) -> None:
        """Its link breaks, and what was on it is lost."""
        self.ready = False
        for stream in (*self._running, *self._waiting):
            self.give_up(stream)
            if not stream.answer.done():
                stream.answer.set_exception(LinkLost("killed"))
                stream.answer.exception()
        for callback in self._callbacks:
            callback()

    def give_up(self, stream: SimStream) -> None:
        """Nobody waits for this one any more."""
        if stream in self._running:
            timer = self._running[stream]
            if timer is not None:
                timer.cancel()
            self._leave(stream)
        elif stream in self._waiting:
            self._waiting.remove(stream)

    def _came(self, stream: SimStream) -> None:
        if not self.ready and not stream.answer.done():
            stream.answer.set_exception(LinkLost("killed"))
            stream.answer.exception()
        elif not stream.answer.done():
            stream.came_at = asyncio.get_running_loop().time()
            self._waiting.append(stream)
            self._fill()

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._running) < self._slots:
            stream = self._waiting.popleft()
            stream.began_at = loop.time()
            service_s = self._time_of(stream.message)
            self._running[stream] = None if self.silent else loop.call_later(service_s, self._done, stream)

    def _done(self, stream: SimStream) -> None:
        now = asyncio.get_running_loop().time()
        assert stream.began_at is not None
        self._leave(stream)
        queue_ms, run_ms = (stream.began_at - stream.came_at) * 1e3, (now - stream.began_at) * 1e3
        text = TranslatedText("x", "en", "edge", MODEL.name)
        answer = Translated((text,), {"edge_queue": queue_ms, "edge_run": run_ms}, queue_ms + run_ms)
        asyncio.get_running_loop().call_later(LINK_S, _deliver, stream, answer)

    def _leave(self, stream: SimStream) -> None:
        assert stream.began_at is not None
        del self._running[stream]
        self.busy_s += asyncio.get_running_loop().time() - stream.began_at
        self._fill()

    def _time_of(self, message: Translate) -> float:
        luck = random.Random(f"{self._seed} {self._number} {message.request_id}")
        stalled = luck.random() < self._stall_share
        return self._service_s * luck.lognormvariate(0.0, 0.25) * (self._stall if stalled else 1.0) * self.slow


def _deliver(stream: SimStream, answer: Translated) -> None:
    if not stream.answer.done():
        stream.answer.set_result(answer)
