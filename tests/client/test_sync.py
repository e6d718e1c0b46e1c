"""The synchronous client, against a fake proxy that runs on a loop in another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nearsay.client import Client, Done, Partial, SegmentDone, TransportName
from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, Unavailable
from tests.client.fake_proxy import FakeProxy, in_thread

BOTH = pytest.mark.parametrize("transport", ["link", "http"])


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with in_thread() as fake:
        yield fake


@BOTH
def test_translate_and_stream(proxy: FakeProxy, transport: TransportName) -> None:
    with Client(proxy.url, transport=transport) as client:
        assert client.translate(["a", "b"], "en", "de").texts == ["A [de]", "B [de]"]
        kinds = [type(event) for event in client.stream("a", "en", "de")]
    assert kinds == [Partial, SegmentDone, Done]
    assert client.url == proxy.url


@BOTH
def test_leaving_a_stream_tells_the_proxy(proxy: FakeProxy, transport: TransportName) -> None:
    with Client(proxy.url, transport=transport) as client:
        for event in client.stream("a", "en", "de"):
            assert isinstance(event, Partial)
            break
        with pytest.raises(DeadlineExceeded):
            list(client.stream("hang", "en", "de", deadline_ms=50))
        assert client.translate("b", "en", "de").text == "B [de]"


def test_many_threads_share_one_client(proxy: FakeProxy) -> None:
    with Client(proxy.url) as client, ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: client.translate(f"t{n}", "en", "de").text, range(200)))
    assert results == [f"T{n} [de]" for n in range(200)]


def test_errors_come_through(proxy: FakeProxy) -> None:
    with Client(proxy.url) as client:
        with pytest.raises(InvalidRequest) as error:
            client.translate("reject unknown_language", "en", "xx")
        assert error.value.code == "unknown_language"
        with pytest.raises(InvalidRequest):
            client.translate("a", "en", "de", tier="best")  # type: ignore[arg-type]


def test_closing_fails_calls_that_wait(proxy: FakeProxy) -> None:
    client = Client(proxy.url)
    client.translate("warm", "en", "de")
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(client.translate, "hang", "en", "de")
        streaming = pool.submit(lambda: list(client.stream("hang", "en", "de")))
        assert proxy.hangs.acquire(timeout=5) and proxy.hangs.acquire(timeout=5)
        client.close()
        for future in (waiting, streaming):
            with pytest.raises(Unavailable):
                future.result(5)


def test_closed_twice_and_used_after(proxy: FakeProxy) -> None:
    client = Client(proxy.url)
    client.close()
    client.close()
    with pytest.raises(Unavailable):
        client.translate("a", "en", "de")
    with pytest.raises(Unavailable):
        next(client.stream("a", "en", "de"))


def test_bad_url_starts_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(InvalidRequest):
        Client("nonsense")
    assert threading.active_count() == before
