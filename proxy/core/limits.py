"""Named bounds of the proxy's decisions, each default written once. Sizes in bytes or characters, times as named."""

from __future__ import annotations

import msgspec

from nearsay.traffic.concurrency import ConcurrencyRules
from nearsay.traffic.ejection import EjectionRules
from nearsay.traffic.hedging import HedgeRules
from nearsay.traffic.wait_queue import QueueRules

KIB = 1024
MIB = 1024 * KIB


class RequestLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one request may ask for. Past a limit the client gets an error that names it."""

    body_bytes_max: int = 2 * MIB  # as it comes over the wire
    decoded_bytes_max: int = 4 * MIB  # after Content-Encoding is undone
    body_timeout_s: float = 30.0  # for the whole body to arrive
    texts_max: int = 256
    text_chars_max: int = 50_000
    total_chars_max: int = 200_000
    session_chars_max: int = 128
    deadline_ms_min: float = 1.0
    deadline_ms_max: float = 600_000.0
    interactive_deadline_ms: float = 10_000.0  # default when the client names none
    batch_deadline_ms: float = 120_000.0


class AttemptLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often and how long the proxy tries to get an answer."""

    attempts_max: int = 3
    attempt_ms_min: float = 20.0  # with less time left another attempt isn't begun
    edge_wait_ms: float = 1_000.0  # for any edge to come up, within the deadline
    retry_ratio: float = 0.2  # retries paid for by each request
    retry_floor_per_s: float = 10.0  # and by each second
    retry_ttl_s: float = 10.0
    latency_tau_s: float = 10.0  # how fast an edge's latency peak is forgotten
    failure_cost_s: float = 1.0  # what a failed attempt counts as
    hedging: HedgeRules = HedgeRules()
    ejection: EjectionRules = EjectionRules()
    concurrency: ConcurrencyRules = ConcurrencyRules()
    queue: QueueRules = QueueRules()  # of requests for which no edge has room


class AnswerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How answers leave."""

    compress_bytes_min: int = KIB  # smaller answers leave as they are
    compress_inline_bytes_max: int = 64 * KIB  # larger ones are compressed off the event loop
    brotli_quality: int = 4  # 11 takes 270 ms for 150 KB
    zstd_level: int = 3
    gzip_level: int = 5
    heartbeat_s: float = 10.0  # a comment on an event stream that has been silent this long
    write_timeout_s: float = 15.0  # a client that takes nothing for this long is cut off
