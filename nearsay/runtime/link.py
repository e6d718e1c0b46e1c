"""The link as services use it: everything public of the session shell in one import."""

from __future__ import annotations

from nearsay.runtime.live import Handler, Link
from nearsay.runtime.peer import Peer
from nearsay.runtime.server import LinkServer
from nearsay.runtime.stream import EndOfStream, Stream
from nearsay.runtime.transport import Connect, Dial, Transport, memory_pair, websocket_connect
from nearsay.wire.limits import LinkLimits

__all__ = [
    "Connect",
    "Dial",
    "EndOfStream",
    "Handler",
    "Link",
    "LinkLimits",
    "LinkServer",
    "Peer",
    "Stream",
    "Transport",
    "memory_pair",
    "websocket_connect",
]
