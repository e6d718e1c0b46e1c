"""Config of an edge worker, each default written once."""

from __future__ import annotations

from pathlib import Path

from edge_worker.core.batcher import BatchLimits
from edge_worker.core.coalesce import CoalesceLimits
from edge_worker.core.placement import Policy
from edge_worker.core.segment_limits import SegmentLimits
from edge_worker.guests import GuestLimits
from edge_worker.pipeline import RequestLimits
from nearsay.runtime.config import Port, ServiceConfig
from nearsay.runtime.link import LinkLimits
from nearsay.text.engine import Device


class EdgeConfig(ServiceConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One edge worker. Nested structs hold the bounds of the parts that they are named for."""

    port: Port = 8110
    admin_port: Port = 8111
    origins: tuple[str, ...] = ()  # "ws://127.0.0.1:8120/link"
    models: tuple[Path, ...] = ()  # folders beside the places that are always looked at
    pairs: tuple[str, ...] = ()  # "en-de"; empty = every pair with an edge model
    device: Device = "auto"
    threads: int = 1  # of one engine
    batch_engine: bool = True  # a model's first batch-class work opens it once more, on a thread that yields to others
    region: str = ""  # its name in the proxies' routing config; grants for other regions are refused, "" = none are
    grant_key: str = ""  # what proxies sign grants with; "" = the secret
    guest: GuestLimits = GuestLimits()
    load_report_s: float = 0.5
    link: LinkLimits = LinkLimits(backoff_max_s=1.0)  # an origin that starts later is found within a second
    placement: Policy = Policy()
    batch: BatchLimits = BatchLimits()
    request: RequestLimits = RequestLimits()
    segment: SegmentLimits = SegmentLimits()
    coalesce: CoalesceLimits = CoalesceLimits()

    def __post_init__(self) -> None:
        if self.threads < 1 or self.load_report_s <= 0:
            raise ValueError("'threads' and 'load_report_s' must be positive")
