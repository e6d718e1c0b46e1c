"""Both transports give the same answers, errors and ends; and what only one of them can do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from nearsay.client import AsyncClient, Done, Draft, Event, Partial, Restart, Result, SegmentDone, TransportName
from nearsay.traffic.budget import RetryBudget
from nearsay.wire.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    LinkLost,
    NearsayError,
    Overloaded,
    Unavailable,
)
from tests.client.fake_proxy import MODEL, STAGES_MS, FakeProxy

BOTH = pytest.mark.parametrize("transport", ["link", "http"])


@pytest.fixture
async def proxy() -> AsyncIterator[FakeProxy]:
    async with FakeProxy().serving() as fake:
        yield fake


def anonymous(result: Result) -> Result:
    """Without the id, which differs from request to request."""
    return msgspec.structs.replace(result, request_id="")


async def collected(client: AsyncClient, text: str | list[str], **options: object) -> list[Event]:
    events = [event async for event in client.stream(text, "en", "de", **options)]  # type: ignore[arg-type]
    last = events[-1]
    assert isinstance(last, Done)
    return [*events[:-1], Done(anonymous(last.result))]


@BOTH
async def test_one_text(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        result = await client.translate("hello", "en", "de", segments=True)
    assert result.text == "HELLO [de]"
    (one,) = result.translations
    assert (one.source, one.tier, one.model, one.degraded) == ("en", "edge", MODEL, False)
    assert [(s.text, s.start, s.end) for s in one.segments] == [("HELLO [de]", 0, 5)]
    assert result.stages_ms == STAGES_MS
    assert result.request_id
    assert proxy.ways == [transport]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tier": "origin"},
        {"tier": "refine", "segments": True},
        {"priority": "batch", "session": "s1", "deadline_ms": 5_000.0},
    ],
)
@pytest.mark.parametrize("text", ["hello", ["one", "two"], "", "\x00 ünï 🙂"])
async def test_transports_agree(proxy: FakeProxy, text: str | list[str], options: dict[str, object]) -> None:
    answers, streams = [], []
    for transport in ("link", "http"):
        async with AsyncClient(proxy.url, transport=transport) as client:
            result = await client.translate(text, "en", "de", **options)  # type: ignore[arg-type]
            answers.append(anonymous(result))
            streams.append(await collected(client, text, **options))
    assert answers[0] == answers[1]
    assert streams[0] == streams[1]
    assert streams[0][-1] == Done(answers[0])
    asked = [msgspec.structs.replace(r, request_id="", budget_ms=0.0) for r in proxy.requests]
    assert asked[:2] == asked[2:]


@BOTH
async def test_stream_has_typed_events(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        events = await collected(client, ["a", "b"], tier="refine")
    kinds = [type(event) for event in events]
    assert kinds == [Draft, Partial, SegmentDone, Draft, Partial, SegmentDone, Done]
    first = events[0]
    assert isinstance(first, Draft)
    assert (first.item, first.revision, first.end, first.model) == (0, 0, 1, MODEL)


@BOTH
async def test_a_stream_may_begin_again(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        events = await collected(client, "restart")
    assert [type(event) for event in events] == [Partial, Restart, Partial, SegmentDone, Done]


@BOTH
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unsupported_pair", InvalidRequest),
        ("overloaded", Overloaded),
        ("edge_unavailable", Unavailable),
        ("deadline_exceeded", DeadlineExceeded),
        ("code_of_the_future", InternalError),
    ],
)
async def test_errors_keep_class_and_code(
    proxy: FakeProxy, transport: TransportName, code: str, kind: type[NearsayError]
) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        with pytest.raises(kind) as whole:
            await client.translate(f"reject {code}", "en", "de")
        with pytest.raises(kind) as streamed:
            await collected(client, f"reject {code}")
    for error in (whole.value, streamed.value):
        assert (error.code, error.detail, error.retry_after_ms) == (code, "as asked", 250.0)
    assert len(proxy.requests) == 2, "an answer is not retried"


@BOTH
async def test_answer_that_misses_a_text_is_an_error(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        with pytest.raises(InternalError):
            await client.translate(["short", "second"], "en", "de")


@BOTH
async def test_deadline_ends_a_request_and_tells_the_proxy(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client, asyncio.timeout(5):
        await client.translate("warm", "en", "de")
        with pytest.raises(DeadlineExceeded):
            await client.translate("hang", "en", "de", deadline_ms=50)
        await proxy.left.wait()
    assert 0 < proxy.requests[-1].budget_ms <= 50


@BOTH
async def test_cancelling_the_task_tells_the_proxy(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client, asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.translate("hang", "en", "de")
        await proxy.left.wait()
        assert (await client.translate("next", "en", "de")).text == "NEXT [de]"


@BOTH
async def test_leaving_a_stream_tells_the_proxy(transport: TransportName) -> None:
    async with FakeProxy().serving() as proxy, AsyncClient(proxy.url, transport=transport) as client:
        async with aclosing(client.stream("hang after nothing", "en", "de")) as events, asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(events)
        async with asyncio.timeout(5):
            await proxy.left.wait()
    assert proxy.cancelled == 1


@BOTH
async def test_lost_transport_is_tried_again(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport, rng=random.Random(1)) as client, asyncio.timeout(10):
        assert (await client.translate("drop", "en", "de")).text == "DROP [de]"
    assert len(proxy.requests) == 2
    if transport == "link":
        assert [request.attempt for request in proxy.requests] == [1, 2]


@BOTH
async def test_a_proxy_that_goes_away_is_asked_again(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client, asyncio.timeout(10):
        assert (await client.translate("drain", "en", "de")).text == "DRAIN [de]"
    assert len(proxy.requests) == 2


@BOTH
async def test_no_retry_without_budget(proxy: FakeProxy, transport: TransportName) -> None:
    broke = RetryBudget(ratio=0, floor_per_s=0, ttl_s=10, now=0)
    async with AsyncClient(proxy.url, transport=transport, retries=broke) as client:
        with pytest.raises(LinkLost):
            await client.translate("drop", "en", "de")
    assert len(proxy.requests) == 1


@BOTH
async def test_a_stream_is_not_begun_twice(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        events = client.stream("drop after one", "en", "de")
        assert isinstance(await anext(events), Partial)
        with pytest.raises(LinkLost):
            await anext(events)
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("transport", ["auto", "link", "http"])
async def test_nobody_there(transport: TransportName) -> None:
    async with AsyncClient("http://127.0.0.1:1", transport=transport) as client, asyncio.timeout(10):
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await client.translate("hello", "en", "de", deadline_ms=300)


@pytest.mark.parametrize("transport", ["auto", "http"])
async def test_http_where_no_websocket_can_be_had(transport: TransportName) -> None:
    async with FakeProxy(link=False).serving() as proxy, AsyncClient(proxy.url, transport=transport) as client:
        async with asyncio.timeout(2):
            assert (await client.translate("hello", "en", "de")).text == "HELLO [de]"
    assert proxy.ways == ["http"]


async def test_auto_takes_the_link_and_http_while_it_is_down(proxy: FakeProxy) -> None:
    async with AsyncClient(proxy.url) as client, asyncio.timeout(10):
        await client.translate("one", "en", "de")
        assert (await client.translate("drop", "en", "de")).text == "DROP [de]"
    assert proxy.ways[:2] == ["link", "link"]
    assert len(proxy.ways) == 3


@pytest.mark.parametrize("transport", ["auto", "link", "http"])
async def test_key(transport: TransportName) -> None:
    async with FakeProxy(key="right").serving() as proxy:
        async with AsyncClient(proxy.url, key="right", transport=transport) as client:
            await client.translate("hello", "en", "de")
        async with AsyncClient(proxy.url, key="wrong", transport=transport) as client, asyncio.timeout(5):
            with pytest.raises(InvalidRequest) as refused:
                await client.translate("hello", "en", "de")
        assert refused.value.code == "unauthorised"


@BOTH
async def test_many_requests_share_the_connection(proxy: FakeProxy, transport: TransportName) -> None:
    async with AsyncClient(proxy.url, transport=transport) as client:
        results = await asyncio.gather(*(client.translate(f"t{n}", "en", "de") for n in range(100)))
    assert [result.text for result in results] == [f"T{n} [de]" for n in range(100)]


async def test_closed_client_refuses(proxy: FakeProxy) -> None:
    client = AsyncClient(proxy.url)
    await client.translate("hello", "en", "de")
    await client.aclose()
    await client.aclose()
    with pytest.raises(Unavailable):
        await client.translate("hello", "en", "de")


@pytest.mark.parametrize("url", ["", "localhost:8100", "ftp://x", "http://"])
def test_url_that_is_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSAY_URL", "nonsense")
    with pytest.raises(InvalidRequest):
        AsyncClient(url)


async def test_url_and_key_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProxy(key="k").serving() as proxy:
        monkeypatch.setenv("NEARSAY_URL", proxy.url + "/")
        monkeypatch.setenv("NEARSAY_KEY", "k")
        async with AsyncClient() as client:
            assert (await client.translate("hello", "en", "de")).text == "HELLO [de]"
