"""Tells peers and metrics how busy the origin is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.link import LinkServer
from nearsay.runtime.metrics import Metrics
from nearsay.wire.messages import LoadReport, ModelInfo
from origin.core.draft_len import ACCEPT_LENGTHS
from origin.core.plan import DraftUse
from origin.engine_loop import EngineLoop
from origin.server import OriginServer


class Reporter:
    """A load report when the state changes, and on a timer while anything else does."""

    def __init__(
        self,
        loop: EngineLoop,
        server: OriginServer,
        links: LinkServer,
        metrics: Metrics,
        lifecycle: Lifecycle,
        models: Callable[[], tuple[ModelInfo, ...]],
    ) -> None:
        """`models`: those that new work goes to."""
        self._loop = loop
        self._server = server
        self._links = links
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._models = models
        self._last: LoadReport | None = None
        self._before = msgspec.structs.replace(loop.stats)
        self._step_ms = 0.0

    async def run(self, interval_s: float) -> None:
        """Report for ever."""
        while True:
            await asyncio.sleep(interval_s)
            self.report()

    def report(self) -> None:
        """Report now, unless nothing has changed."""
        self._measure()
        load = self._loop.load_now
        report = LoadReport(
            state=self._lifecycle.state,
            queued=load.queued,
            running=load.running,
            slots_free=load.slots_free,
            step_ms=round(self._step_ms, 3),
            wants_drafts=load.wants_drafts,
            models=self._models(),
        )
        if report != self._last:
            self._last = report
            self._links.publish(report)

    def _measure(self) -> None:
        """Gauges, and the mean step time since the last look."""
        now, before = msgspec.structs.replace(self._loop.stats), self._before
        self._before = now
        if steps := now.steps - before.steps:
            self._step_ms = (now.busy_s - before.busy_s) * 1e3 / steps
            self._metrics.gauge("rows_per_step", (now.rows - before.rows) / steps)
        self._metrics.gauge("step_ms", self._step_ms)
        self._metrics.gauge("steps", now.steps)
        self._metrics.gauge("failed_steps", now.failed_steps)
        self._metrics.gauge("passes_cut", now.passes_cut)
        self._metrics.gauge("engine_restarts", now.engine_restarts)
        load = self._loop.load_now
        self._metrics.gauge("queued", load.queued)
        self._metrics.gauge("running", load.running)
        self._metrics.gauge("slots_free", load.slots_free)
        for name, value in msgspec.structs.asdict(load.counts).items():
            self._metrics.gauge(name, value)
        sessions = self._server.sessions
        if sessions is not None:
            self._metrics.gauge("sessions", len(sessions))
            self._metrics.gauge("session_bytes", sessions.bytes)
            for name, value in msgspec.structs.asdict(self._server.session_use).items():
                self._metrics.gauge(f"session_{name}", value)
        past = self._server.past
        if past is not None:
            self._metrics.gauge("past_answers_bytes", past.bytes)
        self._metrics.gauge("sources_encoded", now.encoded)
        self._metrics.gauge("sources_reused", now.encoder_reused)
        for use in load.drafts:
            self._measure_drafts(use)
        self._metrics.gauge("draft_tokens", self._server.draft_tokens)
        self._metrics.gauge("draft_tokens_accepted", self._server.draft_tokens_accepted)

    def _measure_drafts(self, use: DraftUse) -> None:
        """How drafts of one source stand with one model. An accept length's bucket counts what is at most `le`."""
        of = {"model": use.model, "source": use.source}
        self._metrics.gauge("drafts_untried", use.untried, **of)
        self._metrics.gauge("draft_passes_per_id", round(use.passes_per_id, 4), **of)
        self._metrics.gauge("draft_fed_per_id", round(use.fed_per_id, 4), **of)
        so_far = 0
        for bound, count in zip((*ACCEPT_LENGTHS, "+Inf"), use.passes, strict=True):
            so_far += count
            self._metrics.gauge("accept_length", so_far, **of, le=str(bound))
