"""What only the link does; all else is tested for both transports in test_aio.py."""

from __future__ import annotations

import asyncio

import pytest

from nearsay.client.link import LinkTransport, link_url
from tests.client.fake_proxy import FakeProxy


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://h:1", "ws://h:1/link"), ("https://h/", "wss://h/link"), ("http://h/base", "ws://h/base/link")],
)
def test_link_url(url: str, expected: str) -> None:
    assert link_url(url) == expected


async def test_ready_follows_the_link() -> None:
    async with FakeProxy().serving() as proxy, asyncio.timeout(10):
        link = LinkTransport(proxy.url)
        assert not link.ready
        assert await link.wait_settled(5) and link.ready
        down = asyncio.Event()
        link._peer.on_change(lambda: None if link.ready else down.set())
        proxy.break_links()
        await down.wait()
        assert await link.wait_ready(5), "it comes back by itself"
        await link.close()


async def test_nobody_there_is_settled_at_once_and_never_ready() -> None:
    link = LinkTransport("http://127.0.0.1:1")
    async with asyncio.timeout(2):
        assert not await link.wait_settled(60)
        assert not await link.wait_settled(60)
    assert not await link.wait_ready(0.01)
    await link.close()
