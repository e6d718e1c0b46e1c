"""The SDK: `Client` and `AsyncClient`, and the types they hand back."""

import logging

from nearsay.client.aio import AsyncClient, TransportName
from nearsay.client.results import Done, Draft, Event, Partial, Restart, Result, Segment, SegmentDone, Translation
from nearsay.client.sync import Client
from nearsay.wire.messages import Decoding, Stability, WordPair

# A library is silent unless its program sets up logging.
logging.getLogger("nearsay").addHandler(logging.NullHandler())

__all__ = [
    "AsyncClient",
    "Client",
    "Decoding",
    "Done",
    "Draft",
    "Event",
    "Partial",
    "Restart",
    "Result",
    "Segment",
    "SegmentDone",
    "Stability",
    "Translation",
    "TransportName",
    "WordPair",
]
