"""The live link over both transports: a real loopback WebSocket and the memory pair. No test waits for time to pass."""

from __future__ import annotations

import asyncio
import logging

import pytest

from nearsay.runtime.link import EndOfStream, LinkLimits, Stream
from nearsay.wire.errors import (
    Cancelled,
    InternalError,
    InvalidRequest,
    LinkLost,
    Overloaded,
    Unavailable,
)
from nearsay.wire.messages import LoadReport, Message, Tokens, Translate, Update
from nearsay.wire.session import one_of
from tests.runtime.kit import TIMEOUT_S, answer, ask, rig, turns, until

pytestmark = pytest.mark.parametrize("transport", ["memory", "websocket"])


async def echo(stream: Stream) -> None:
    """Answer with the text asked for; "stream N" sends N updates before."""
    assert isinstance(stream.message, Translate)
    text = stream.message.texts[0]
    if text.startswith("stream "):
        for i in range(int(text.split()[1])):
            await stream.send(Update(0, 0, i, "partial", str(i)))
    await stream.finish(answer(text))


async def nothing(stream: Stream) -> None:
    """Never answers."""
    await asyncio.get_running_loop().create_future()


async def receive_all(stream: Stream) -> list[Message]:
    async with asyncio.timeout(TIMEOUT_S):
        return [message async for message in stream]


async def test_a_question_and_its_answer(transport: str) -> None:
    async with rig(transport, echo) as link:
        peer = await link.peer()
        stream = await peer.open(ask("hello"))
        assert await stream.receive() == answer("hello")
        with pytest.raises(EndOfStream):
            await stream.receive()
        assert peer.in_flight == 0 and stream.peer == peer.hello


async def test_updates_then_the_final_message(transport: str) -> None:
    async with rig(transport, echo) as link:
        peer = await link.peer()
        messages = await receive_all(await peer.open(ask("stream 50")))
        assert [m.text for m in messages[:-1]] == [str(i) for i in range(50)]  # type: ignore[attr-defined]
        assert messages[-1] == answer("stream 50")


async def test_many_streams_at_once_each_gets_its_own(transport: str) -> None:
    async with rig(transport, echo) as link:
        peer = await link.peer()
        texts = [f"text {i} " + "x" * (i * 700) for i in range(200)]
        streams = [await peer.open(ask(text)) for text in texts]
        answers = await asyncio.gather(*map(receive_all, streams))
        assert answers == [[answer(text)] for text in texts]


async def test_a_megabyte_each_way(transport: str) -> None:
    async with rig(transport, echo) as link:
        peer = await link.peer()
        text = "Fünf " * 300_000
        assert await receive_all(await peer.open(ask(text))) == [answer(text)]


async def test_the_handlers_error_is_the_callers(transport: str) -> None:
    async def refuse(stream: Stream) -> None:
        raise Overloaded("busy", retry_after_ms=100.0)

    async with rig(transport, refuse) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        with pytest.raises(Overloaded) as caught:
            await stream.receive()
        assert caught.value.retry_after_ms == 100.0
        with pytest.raises(Overloaded):
            await stream.receive()


async def test_an_explicit_reject(transport: str) -> None:
    async def refuse(stream: Stream) -> None:
        await stream.reject(InvalidRequest(code="unsupported_pair"))
        await stream.reject(InternalError("no effect"))

    async with rig(transport, refuse) as link:
        peer = await link.peer()
        with pytest.raises(InvalidRequest, match="unsupported_pair"):
            await (await peer.open(ask())).receive()


async def test_a_handler_that_crashes_or_forgets_to_answer(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(stream: Stream) -> None:
        assert isinstance(stream.message, Translate)
        if stream.message.texts[0] == "crash":
            raise ZeroDivisionError

    async with rig(transport, broken) as link:
        peer = await link.peer()
        for text in ("crash", "forget"):
            with pytest.raises(InternalError):
                await (await peer.open(ask(text))).receive()
        assert await link.peer() is not None, "the server lives on"
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == [
        "a handler crashed",
        "a handler returned without an answer",
    ]


async def test_a_cancel_reaches_the_handler(transport: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(stream: Stream) -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    async with rig(transport, wait) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await started.wait()
        stream.cancel()
        stream.cancel()
        assert peer.in_flight == 0
        with pytest.raises(Cancelled):
            await stream.receive()
        async with asyncio.timeout(TIMEOUT_S):
            await cancelled.wait()
        await turns(lambda: link.server.in_flight == 0)


async def test_sending_on_a_cancelled_stream_raises(transport: str) -> None:
    streams: list[Stream] = []
    opened, left = asyncio.Event(), asyncio.Event()

    async def handler(stream: Stream) -> None:
        streams.append(stream)
        opened.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            left.set()

    async with rig(transport, handler) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await opened.wait()
        stream.cancel()
        async with asyncio.timeout(TIMEOUT_S):
            await left.wait()
        for call in (streams[0].send, streams[0].finish):
            with pytest.raises(Cancelled):
                await call(answer())


async def test_a_lost_link_fails_its_streams_at_once_and_comes_back(transport: str) -> None:
    async with rig(transport, nothing) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        reading = link.tasks.spawn(stream.receive(), name="reader")
        await turns(lambda: link.server.in_flight == 1)
        (inbound,) = link.server._links
        inbound.close("killed")
        with pytest.raises(LinkLost):
            await reading
        assert peer.in_flight == 0 and not peer.ready
        assert link.server.in_flight == 0, "the handler is cancelled too"
        with pytest.raises(Unavailable):
            await peer.open(ask())
        await until(peer.on_change, lambda: peer.ready)
        (await peer.open(ask())).cancel()


async def test_the_sender_waits_for_the_reader(transport: str) -> None:
    """A reader that reads nothing stops a sender after window and queue; reading lets it go on. No one else waits."""
    sent = 0
    going = asyncio.Event()

    async def flood(stream: Stream) -> None:
        nonlocal sent
        assert isinstance(stream.message, Translate)
        if stream.message.texts[0] == "other":
            return await stream.finish(answer())
        for _ in range(200):
            await stream.send(Tokens(bytes(10_000)))
            sent += 1
            going.set()
        await stream.finish(answer())

    async with rig(transport, flood) as link:
        peer = await link.peer()
        stream = await peer.open(ask("flood"))
        await going.wait()
        for _ in range(20):
            assert await receive_all(await peer.open(ask("other"))) == [answer()]
        assert 10 < sent < 60
        messages = await receive_all(stream)
        assert len(messages) == 201 and sent == 200


async def test_send_nowait_past_the_bound_is_overloaded(transport: str) -> None:
    async def flood(stream: Stream) -> None:
        with pytest.raises(Overloaded):
            for _ in range(1_000):
                stream.send_nowait(Tokens(bytes(10_000)))
        stream.finish_nowait(answer())

    async with rig(transport, flood) as link:
        peer = await link.peer()
        messages = await receive_all(await peer.open(ask()))
        assert 20 < len(messages) < 60 and messages[-1] == answer()


async def test_a_cancel_frees_a_sender_that_waits(transport: str) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def flood(stream: Stream) -> None:
        try:
            while True:
                await stream.send(Tokens(bytes(50_000)))
        except BaseException as error:
            ended.set_result(type(error).__name__)
            raise

    async with rig(transport, flood) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await stream.receive()
        stream.cancel()
        assert await ended in ("CancelledError", "Cancelled")


async def test_streams_over_the_limit_are_rejected(transport: str) -> None:
    async with rig(transport, nothing, limits=LinkLimits(streams_max=1)) as link:
        peer = await link.peer()
        kept = await peer.open(ask())
        with pytest.raises(Overloaded, match="too_many_streams"):
            await (await peer.open(ask())).receive()
        kept.cancel()


async def test_load_reports_reach_old_and_new_links(transport: str) -> None:
    async with rig(transport, echo) as link:
        old = await link.peer()
        assert old.load is None
        link.server.publish(LoadReport("ready", queued=3))
        await until(old.on_change, lambda: old.load is not None)
        new = await link.peer()
        await until(new.on_change, lambda: new.load is not None)
        assert old.load == new.load == LoadReport("ready", queued=3)


async def test_drain_finishes_what_is_open_and_takes_nothing_new(transport: str) -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def slow(stream: Stream) -> None:
        started.set()
        await release.wait()
        await stream.finish(answer("x" * 300_000))

    async with rig(transport, slow) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await started.wait()
        draining = link.tasks.spawn(link.server.drain(TIMEOUT_S), name="drain")
        await until(peer.on_change, lambda: not peer.ready)
        with pytest.raises(Unavailable):
            await peer.open(ask())
        assert peer.in_flight == 1 and not draining.done()
        release.set()
        assert await receive_all(stream) == [answer("x" * 300_000)]
        await draining


async def test_drain_does_not_wait_longer_than_told(transport: str) -> None:
    async with rig(transport, nothing) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await turns(lambda: link.server.in_flight == 1)
        await link.server.drain(0.0)
        with pytest.raises(LinkLost):
            await stream.receive()


async def test_a_wrong_secret_never_comes_up(transport: str) -> None:
    async with rig(transport, echo, secret=one_of(("one", "two"))) as link:
        stranger = await link.peer(secret="three", wait=False)
        await until(stranger.on_change, lambda: stranger.reason == "unauthorised")
        assert not stranger.ready and stranger.hello is None
        friend = await link.peer(secret="two")
        assert await receive_all(await friend.open(ask("hi"))) == [answer("hi")]


async def test_a_handler_learns_what_the_secret_made_of_its_peer(transport: str) -> None:
    names = {"s1": "acme", "s2": "globex"}
    seen: list[str] = []

    async def look(stream: Stream) -> None:
        assert stream.peer is not None and stream.peer.secret == ""
        seen.append(stream.who)
        await stream.finish(answer())

    async with rig(transport, look, secret=names.get) as link:
        for secret in ("s2", "s1"):
            await receive_all(await (await link.peer(secret=secret)).open(ask()))
        stranger = await link.peer(secret="s3", wait=False)
        await until(stranger.on_change, lambda: stranger.reason == "unauthorised")
    assert seen == ["globex", "acme"]


async def test_the_budget_shrinks_on_the_way(transport: str) -> None:
    seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def look(stream: Stream) -> None:
        assert isinstance(stream.message, Translate)
        seen.set_result(stream.message.budget_ms)
        await stream.finish(answer())

    async with rig(transport, look) as link:
        peer = await link.peer()
        await receive_all(await peer.open(ask(budget_ms=60_000.0)))
        assert 0.0 < await seen < 60_000.0


async def test_cancelling_the_reader_leaves_the_stream_usable(transport: str) -> None:
    gate = asyncio.Event()

    async def gated(stream: Stream) -> None:
        await gate.wait()
        await stream.finish(answer())

    async with rig(transport, gated) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stream.receive()
        gate.set()
        assert await stream.receive() == answer()


async def test_shutting_tasks_down_rejects_what_is_open(transport: str) -> None:
    async with rig(transport, nothing) as link:
        peer = await link.peer()
        stream = await peer.open(ask())
        await turns(lambda: link.server.in_flight == 1)
        (inbound,) = link.server._links
        (handler,) = inbound._handlers.values()
        handler.cancel()
        with pytest.raises(Unavailable, match="draining"):
            await stream.receive()


async def test_links_over_the_limit_are_refused(transport: str) -> None:
    async with rig(transport, echo, limits=LinkLimits(links_max=1)) as link:
        first = await link.peer()
        second = await link.peer(wait=False)
        await until(second.on_change, lambda: second.reason != "")
        assert not second.ready and first.ready
