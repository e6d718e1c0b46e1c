"""Bounds of a link. The protocol's constants both sides must share; the limits each side chooses for itself."""

from __future__ import annotations

import msgspec

FRAGMENT_BYTES = 32 << 10  # a longer message travels in pieces, so that nothing waits long behind it
WINDOW_BYTES = 256 << 10  # unread bytes a stream may have in flight before its reader grants more
ITEM_OVERHEAD_BYTES = 64  # charged per piece on top of its bytes: tiny messages cost memory too
PACKET_BYTES = 64 << 10  # a packet is closed at the first piece that reaches this
PACKET_PIECES = 1024  # a packet holds at most so many pieces, so many control frames and so many grants
PACKET_BYTES_MAX = 512 << 10  # received: pieces, control frames, and a hello or load report with many models
BUDGET_MS_MAX = 1e12
PACKET_FRAMES_MAX = 4 * PACKET_PIECES  # received, each piece and grant counted


class LinkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What this side accepts, keeps and waits for. Sizes in bytes, times in seconds."""

    links_max: int = 1024  # accepted at once
    streams_max: int = 1024  # open at once, per opening side
    message_bytes_max: int = 8 << 20  # told to the peer in `Hello`
    array_items_max: int = 65_536  # items of one list inside a message, either way
    stream_queued_bytes_max: int = 256 << 10  # written by us, not sent yet; one message is always allowed
    link_queued_bytes_max: int = 64 << 20
    received_bytes_max: int = 64 << 20  # received on this link, not read by its handlers yet
    control_frames_max: int = 4096  # control frames waiting for a peer that doesn't read
    hello_timeout_s: float = 5.0
    ping_interval_s: float = 5.0
    ping_timeout_s: float = 15.0
    connect_timeout_s: float = 5.0
    backoff_min_s: float = 0.05
    backoff_max_s: float = 5.0

    def __post_init__(self) -> None:
        assert self.streams_max > 0 and self.control_frames_max > 0 and self.message_bytes_max > 0
        assert 0 < self.backoff_min_s <= self.backoff_max_s
        assert 0 < self.ping_interval_s <= self.ping_timeout_s
