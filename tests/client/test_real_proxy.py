"""The SDK through the real proxy, with an edge that answers in capitals: both transports, one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from nearsay.client import AsyncClient, Decoding, Done, Event, Result, Stability
from nearsay.runtime.service import run_service
from nearsay.runtime.stop import Stop
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import InvalidRequest, NearsayError
from nearsay.wire.messages import Hello, ModelInfo
from proxy.app import build
from proxy.config import ProxyConfig
from tests.client.fake_proxy import FakeProxy

MODEL = ModelInfo("en-de-student", "1", "en", "de", "edge", "0" * 16, "1" * 16)
EDGE = Hello(role="edge", models=(MODEL,), origin_pairs=("en-de",))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    stop, ready, tasks = Stop(), asyncio.Queue[str](), Tasks()
    async with FakeProxy(hello=EDGE).serving() as edge, asyncio.timeout(30):
        config = ProxyConfig(port=0, admin_port=0, edges=(edge.url.replace("http", "ws") + "/link",), keys=("k",))
        running = tasks.spawn(run_service(build(config), stop=stop, announce=ready.put_nowait), name="proxy")
        yield f"http://127.0.0.1:{json.loads(await ready.get())['port']}"
        stop.ask()
        await running


def comparable(result: Result) -> Result:
    return msgspec.structs.replace(result, request_id="", stages_ms=dict.fromkeys(result.stages_ms, 0.0))


async def outcome(client: AsyncClient, text: str | list[str], options: dict[str, object]) -> tuple[object, ...]:
    """Everything that came of it, but for times and ids."""
    events: list[Event] = []
    try:
        whole = comparable(await client.translate(text, "en", "de", **options))  # type: ignore[arg-type]
        async for event in client.stream(text, "en", "de", **options):  # type: ignore[arg-type]
            events.append(Done(comparable(event.result)) if isinstance(event, Done) else event)
    except NearsayError as error:
        return type(error), error.code, error.detail, events
    return whole, events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"segments": True, "priority": "batch"},
        {"tier": "refine", "session": "s"},
        {"stability": Stability(0.2, 1), "session": "s", "decoding": Decoding(alignment=True)},
        {"decoding": Decoding(alternatives=2)},
        {"decoding": Decoding(beam=9)},
        {"stability": Stability(0.2), "decoding": Decoding(beam=2)},
    ],
)
async def test_transports_agree(url: str, options: dict[str, object]) -> None:
    texts: list[str | list[str]] = ["hello", ["one", "two"], " \x00 ünï 🙂\r\n", "", [], "x" * 300_000]
    texts += ["reject unsupported_pair", "reject deadline_exceeded"]
    async with (
        AsyncClient(url, key="k", transport="link") as link,
        AsyncClient(url, key="k", transport="http") as http,
    ):
        for text in texts:
            assert await outcome(link, text, options) == await outcome(http, text, options), text[:40]


@pytest.mark.parametrize("transport", ["auto", "link", "http"])
async def test_wrong_key_and_unknown_language(url: str, transport: str) -> None:
    async with AsyncClient(url, key="wrong", transport=transport) as client:  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest) as refused:
            await client.translate("hello", "en", "de")
        assert refused.value.code == "unauthorised"
    async with AsyncClient(url, key="k", transport=transport) as client:  # type: ignore[arg-type]
        for source, code in (("auto", "detection_unavailable"), ("zz", "unknown_language"), ("de", "unsupported_pair")):
            with pytest.raises(InvalidRequest) as refused:
                await client.translate("hello", source, "en")
            assert refused.value.code == code
