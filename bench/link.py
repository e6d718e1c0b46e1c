"""Case link: round trips over one multiplexed link, beside aiohttp POSTs that carry the same msgpack, in one run.

Both ends of both live in this process on one event loop (uvloop when installed), so a figure is what one core does for
client and server together. Rounds alternate; a ratio is the median of the rounds' ratios. Floors are on ratios only.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from bench.report import Measure, Note, write_result
from nearsay.lab.report import percentile
from nearsay.runtime.link import LinkLimits, LinkServer, Peer, Stream
from nearsay.runtime.service import loop_factory
from nearsay.runtime.tasks import Tasks
from nearsay.wire.codec import Codec
from nearsay.wire.messages import Hello, Message, Translate, Translated, TranslatedText, Update

IN_FLIGHT = 32
CHUNKS = 20
LENGTH_BYTES = 4  # before each message of a chunked HTTP answer
STAGES = {"segment": 0.05, "tokenise": 0.08, "edge_queue": 0.1, "edge_run": 8.0, "detokenise": 0.04, "join": 0.01}
ANSWER = Translated(
    (TranslatedText("Guten Morgen, wie geht es dir?", "en", "edge", "en-de-student@1"),), STAGES, accounted_ms=8.3
)
UPDATE = Update(0, 0, 1, "partial", "Guten Morgen, wie geht", model="en-de-student@1")

Ask = Callable[[bool], Awaitable[None]]  # one round trip: streamed or not


class Rates(msgspec.Struct, frozen=True):
    """One round of both ways: round trips a second with 32 in flight, and p50 alone in us."""

    link_per_s: float
    post_per_s: float
    link_streams_per_s: float
    post_streams_per_s: float
    link_alone_us: float
    post_alone_us: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=8_000, help="unary round trips a round and way")


def main(options: argparse.Namespace) -> Path:
    """Measure, write the result, return its path."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        rounds = runner.run(_measure(options.rounds, options.requests))
        loop = type(runner.get_loop()).__module__
    return write_result("link", _measures(rounds), _notes(rounds, options, loop))


def _measures(rounds: list[Rates]) -> list[Measure]:
    unary = statistics.median(r.link_per_s / r.post_per_s for r in rounds)
    streams = statistics.median(r.link_streams_per_s / r.post_streams_per_s for r in rounds)
    alone = statistics.median(r.link_alone_us / r.post_alone_us for r in rounds)
    return [
        Measure("unary_ratio", unary, "x aiohttp POST", 3.0, 5.0, "higher"),
        Measure("streams_ratio", streams, "x aiohttp POST", 1.5, 3.0, "higher"),
        Measure("alone_p50_ratio", alone, "x aiohttp POST", 1.0, 0.5, "lower"),
    ]


def _notes(rounds: list[Rates], options: argparse.Namespace, loop: str) -> dict[str, Note]:
    medians = {
        field: round(statistics.median(getattr(r, field) for r in rounds), 1) for field in Rates.__struct_fields__
    }
    return {
        "what": f"{IN_FLIGHT} in flight, link: 1 connection, POST: {IN_FLIGHT}; streams of {CHUNKS} updates",
        "loop": loop,
        "rounds": options.rounds,
        "requests": options.requests,
        **medians,
    }


async def _measure(rounds: int, requests: int) -> list[Rates]:
    tasks = Tasks()
    async with _ends(tasks) as (link, post):
        await _round(link, post, max(requests // 10, IN_FLIGHT), tasks)  # warm up
        measured = [await _round(link, post, requests, tasks) for _ in range(rounds)]
    await tasks.close()
    return measured


async def _round(link: Ask, post: Ask, requests: int, tasks: Tasks) -> Rates:
    return Rates(
        await _rate(link, False, requests, tasks),
        await _rate(post, False, requests // 4, tasks),
        await _rate(link, True, requests // 8, tasks),
        await _rate(post, True, requests // 16, tasks),
        await _alone_us(link, requests // 10),
        await _alone_us(post, requests // 10),
    )


async def _rate(ask: Ask, streamed: bool, requests: int, tasks: Tasks) -> float:
    """Closed loop: 32 clients, each asks again when it has its answer."""

    async def client() -> None:
        for _ in range(requests // IN_FLIGHT):
            await ask(streamed)

    began = time.perf_counter()
    await asyncio.gather(*(tasks.spawn(client(), name="client") for _ in range(IN_FLIGHT)))
    return requests // IN_FLIGHT * IN_FLIGHT / (time.perf_counter() - began)


async def _alone_us(ask: Ask, requests: int) -> float:
    taken = []
    for _ in range(requests):
        began = time.perf_counter()
        await ask(False)
        taken.append((time.perf_counter() - began) * 1e6)
    return percentile(sorted(taken), 50)


@asynccontextmanager
async def _ends(tasks: Tasks) -> AsyncIterator[tuple[Ask, Ask]]:
    """A server with both doors, and a client for each."""
    codec = Codec(LinkLimits())
    server = LinkServer(
        hello=lambda: Hello("edge"), handler=_on_stream, tasks=tasks, limits=LinkLimits(), clock=time.monotonic
    )
    app = web.Application()
    app.add_routes([web.get("/link", server.handle), web.post("/post", _on_post(codec))])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    peer = Peer(
        f"ws://{address}/link", hello=lambda: Hello("proxy"), tasks=tasks, limits=LinkLimits(), clock=time.monotonic
    )
    up = asyncio.Event()
    peer.on_change(up.set)
    await peer.start()
    await up.wait()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as http:
        yield _over_link(peer), _over_post(http, f"http://{address}/post", codec)
    await peer.close()
    await runner.cleanup()


def _question(streamed: bool) -> Translate:
    return Translate("0123456789abcdef", ("Good morning, how are you?",), "en", "de", stream=streamed)


def _over_link(peer: Peer) -> Ask:
    async def ask(streamed: bool) -> None:
        stream = await peer.open(_question(streamed))
        seen = 0
        async for _ in stream:
            seen += 1
        assert seen == (CHUNKS + 1 if streamed else 1)

    return ask


def _over_post(http: aiohttp.ClientSession, url: str, codec: Codec) -> Ask:
    async def ask(streamed: bool) -> None:
        async with http.post(url, data=codec.encode(_question(streamed))) as response:
            if not streamed:
                assert isinstance(codec.decode(await response.read()), Translated)
                return
            seen = 0
            while head := await response.content.read(LENGTH_BYTES):
                codec.decode(await response.content.readexactly(int.from_bytes(head, "little")))
                seen += 1
            assert seen == CHUNKS + 1

    return ask


async def _on_stream(stream: Stream) -> None:
    assert isinstance(stream.message, Translate)
    if stream.message.stream:
        for _ in range(CHUNKS):
            await stream.send(UPDATE)
            await asyncio.sleep(0)  # a token is made between two updates
    await stream.finish(ANSWER)


def _on_post(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    def framed(message: Message) -> bytes:
        body = codec.encode(message)
        return len(body).to_bytes(LENGTH_BYTES, "little") + body

    async def handler(request: web.Request) -> web.StreamResponse:
        question = codec.decode(await request.read())
        assert isinstance(question, Translate)
        if not question.stream:
            return web.Response(body=codec.encode(ANSWER))
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(CHUNKS):
            await response.write(framed(UPDATE))
            await asyncio.sleep(0)
        await response.write(framed(ANSWER))
        return response

    return handler
