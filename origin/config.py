"""The origin's config. Each default stands here and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from nearsay.runtime.config import Port, ServiceConfig
from nearsay.wire.limits import LinkLimits
from origin.core.scheduler import Limits
from origin.core.sessions import SessionLimits


class OriginConfig(ServiceConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """models: folders to look for models in, before the usual places; the first model found for a pair is served.
    pairs: serve only these ("en-de"), all if empty.

    engine: "echo" answers with the source reversed, to measure what surrounds an engine.
    threads: torch threads of the engine; 0 = half the cores, at least one: the other half is for this process's event
    loop and, on one machine, for the edge. slots: sequences of one model that can be decoded at the same time; their
    caches are allocated at the start. report_interval_s: load reports leave this often while something changes.
    encoder_cache_mb, encoder_cache_host_mb: encoder output kept for sources that come again, on the device and, beside
    a GPU, in the host's memory. past_answers_mb: answers kept to draft the same sources for another model version.
    memory_bytes_max: of all models with their caches, and of what is kept on the device; 0 = half of what the machine
    or its control group has, 90 % of a GPU's. A model that does not fit is not loaded. swap_grace_s: how long a model
    that was replaced is still admitted by its old name. keep_warm_s: an idle engine does a small step that often; 0 =
    none.
    """

    port: Port = 8120
    admin_port: Port = 8121
    models: tuple[Path, ...] = ()
    pairs: tuple[str, ...] = ()
    engine: Literal["torch", "echo"] = "torch"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int = 0
    slots: int = 64
    beam_max: int = 8
    budget_ms_max: float = 600_000.0
    report_interval_s: float = 0.1
    inbox_max: int = 16_384
    encoder_cache_mb: int = 64
    encoder_cache_host_mb: int = 256
    memory_bytes_max: int = 0
    swap_grace_s: float = 2.0
    keep_warm_s: float = 0.0
    past_answers_mb: int = 16
    scheduler: Limits = Limits()
    sessions: SessionLimits = SessionLimits()
    link: LinkLimits = LinkLimits()

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ValueError("'threads' is negative")
        if min(self.slots, self.beam_max) < 1:
            raise ValueError("'slots' and 'beam_max' must be at least 1")
        if min(self.encoder_cache_mb, self.encoder_cache_host_mb, self.past_answers_mb) < 0:
            raise ValueError("a cache's size is negative")
        if min(self.memory_bytes_max, self.swap_grace_s, self.keep_warm_s) < 0:
            raise ValueError("'memory_bytes_max', 'swap_grace_s' or 'keep_warm_s' is negative")
        if not self.report_interval_s > 0 or not self.budget_ms_max > 0:
            raise ValueError("'report_interval_s' and 'budget_ms_max' must be positive")


def thread_count(configured: int, cores: int) -> int:
    """The rule behind `threads`."""
    return configured or max(1, cores // 2)
