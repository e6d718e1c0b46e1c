"""What a transport of the SDK is, and how one says that it was lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from nearsay.client.request import Request
from nearsay.client.results import Event
from nearsay.wire.errors import NearsayError


class TransportLost(Exception):
    """The transport failed, so the request may be sent again; `error` is what the caller sees if it is not.

    Never leaves the SDK. Errors that the proxy answered are raised as they are: those are not ours to retry.
    """

    def __init__(self, error: NearsayError) -> None:
        self.error = error
        super().__init__(str(error))


def going_away(error: NearsayError) -> bool:
    """Whether an answer means that this proxy is shutting down and did nothing: the transport's end, told politely."""
    return error.code == "draining"


class Transport(Protocol):
    """A way to the proxy, shared by all requests of a client."""

    def exchange(self, request: Request, attempt: int) -> AsyncGenerator[Event, None]:
        """Send a request; its events, `Done` last. Closing the generator tells the proxy that the caller left.

        Raises TransportLost, or the NearsayError that the proxy answered.
        """
        ...

    async def close(self) -> None:
        """Give up what is held; exchanges in flight fail."""
        ...
