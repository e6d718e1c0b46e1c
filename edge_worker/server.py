"""The edge's side of its links: `Translate` in; updates, then one `Translated` or a reject, out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge_worker.models import Models
from edge_worker.outbox import Outbox
from edge_worker.pipeline import Pipeline
from nearsay.runtime.clock import Clock
from nearsay.runtime.link import Stream
from nearsay.runtime.metrics import Metrics
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, NearsayError
from nearsay.wire.messages import Hello, LoadReport, State, Translate, Translated, length_bucket


class EdgeServer:
    """Link handler and what links are told about this edge."""

    def __init__(
        self,
        pipeline: Pipeline,
        models: Models,
        *,
        instance: str,
        state: Callable[[], State],
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._pipeline = pipeline
        self._models = models
        self._instance = instance
        self._state = state
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks

    def hello(self) -> Hello:
        """What a new link is told."""
        return Hello(
            role="edge",
            instance=self._instance,
            state=self._state(),
            models=self._models.infos(),
            origin_pairs=self._models.origin_pairs(),
        )

    def load(self) -> LoadReport:
        """What open links are told from time to time."""
        return self._models.load(self._state())

    async def translate(self, stream: Stream) -> None:
        """Answer one stream. The link cancels this when the peer leaves, and with it everything that runs for it."""
        received = self._clock()
        request = stream.message
        if not isinstance(request, Translate):
            raise InvalidRequest("an edge worker takes Translate only")
        outbox = Outbox(stream, self._tasks) if request.stream else None
        try:
            async with asyncio.timeout(max(0.0, request.budget_ms / 1000.0)):
                answer = await self._pipeline.translate(request, received, outbox.put if outbox else None)
                if outbox is not None:
                    await outbox.flush()
                await stream.finish(answer)
        except TimeoutError:
            self._metrics.count("failed", code=DeadlineExceeded.default_code)
            raise DeadlineExceeded("it could not be translated in time") from None
        except NearsayError as error:
            self._metrics.count("failed", code=error.code)
            raise
        finally:
            if outbox is not None:
                outbox.close()
        self._observe(request, answer)  # off the answer's way

    def _observe(self, request: Translate, answer: Translated) -> None:
        stages_ms = answer.stages_ms | {"e2e": answer.accounted_ms}
        tier = "origin" if any(text.tier == "origin" for text in answer.translations) else "edge"
        bucket = length_bucket(sum(map(len, request.texts)))
        self._metrics.observe_stages(stages_ms, tier=tier, bucket=bucket, pair=f"{request.source}-{request.target}")
        for text in answer.translations:
            if text.degraded:
                self._metrics.count("degraded", reason=text.degraded_reason)
