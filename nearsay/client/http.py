"""The SDK over plain HTTP: `POST /v1/translate`, JSON back, or server-sent events for a streamed request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import aiohttp
import msgspec

from nearsay.client.request import Request
from nearsay.client.results import EVENT_KINDS, Done, Event, Restart, Result, checked
from nearsay.client.sse import EventParser, ServerEvent
from nearsay.client.transport import TransportLost, going_away
from nearsay.wire.errors import InternalError, LinkLost, NearsayError, Unavailable, from_code

T = TypeVar("T")

CONNECTIONS_MAX = 256
CONNECT_TIMEOUT_S = 5.0
PROBLEM_BYTES_MAX = 64 << 10


class Problem(msgspec.Struct, frozen=True):
    """RFC 9457 problem, as the proxy writes it."""

    code: str
    detail: str = ""
    retry_after_ms: float | None = None

    def error(self) -> NearsayError:
        """The error it stands for."""
        return from_code(self.code, self.detail, self.retry_after_ms)


class HttpTransport:
    """One aiohttp session: connections are kept alive and shared, `CONNECTIONS_MAX` of them."""

    def __init__(self, url: str, *, key: str = "") -> None:
        self._url = url.rstrip("/") + "/v1/translate"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, request: Request, attempt: int) -> AsyncGenerator[Event, None]:
        """See `Transport.exchange`."""
        body = request.body(asyncio.get_running_loop().time())
        headers = {"Accept": "text/event-stream" if request.stream else "application/json"}
        with _mapped_errors():
            async with self._open().post(self._url, data=body, headers=headers) as response:
                if response.status != 200:
                    error = await _error_of(response)
                    raise TransportLost(error) if going_away(error) else error
                try:
                    if response.content_type == "text/event-stream":
                        async for event in _events(response, len(request.texts)):
                            yield event
                    else:
                        yield Done(_result(await response.read(), len(request.texts)))
                finally:
                    if not response.content.at_eof():
                        response.close()  # the caller left: let the proxy see it now, not at the next keep-alive

    async def close(self) -> None:
        """Close the kept connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                # The deadline of each request is the client's to keep.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                headers=self._headers,
            )
        return self._session


async def _events(response: aiohttp.ClientResponse, texts: int) -> AsyncIterator[Event]:
    parser = EventParser()
    async for chunk in response.content.iter_any():
        for server_event in parser.feed(chunk):
            event = _event_of(server_event, texts)
            if event is not None:
                yield event
            if isinstance(event, Done):
                return
    raise TransportLost(LinkLost("the event stream ended before its last event"))


def _event_of(event: ServerEvent, texts: int) -> Event | None:
    """The SDK's event, None for a kind this version doesn't know. Raises what an `error` event says."""
    match event.kind:
        case "draft" | "partial" | "segment":
            return _decode(event.data.encode(), EVENT_KINDS[event.kind])
        case "restart":
            return Restart()
        case "done":
            return Done(_result(event.data.encode(), texts))
        case "error":
            raise _decode(event.data.encode(), Problem).error()
    return None


def _result(body: bytes, texts: int) -> Result:
    return checked(_decode(body, Result), texts)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise InternalError(f"the proxy's answer can't be read: {error}") from None


async def _error_of(response: aiohttp.ClientResponse) -> NearsayError:
    """The error of an answer; one without a problem body comes from something between us and the proxy."""
    body = await response.content.read(PROBLEM_BYTES_MAX)
    try:
        return msgspec.json.decode(body, type=Problem).error()
    except msgspec.MsgspecError:
        detail = f"HTTP {response.status} {response.reason or ''}".rstrip()
        return Unavailable(detail) if response.status >= 500 else InternalError(detail)


@contextmanager
def _mapped_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise TransportLost(Unavailable(f"can't connect: {error}")) from error
    except aiohttp.InvalidURL as error:
        raise Unavailable(f"not a usable URL: {error}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise TransportLost(LinkLost(f"the connection broke: {type(error).__name__}")) from error
