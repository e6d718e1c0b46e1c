"""Case stages: whether a request's stages explain its time, one request after another through real processes.

What no stage claims is `unaccounted`; of each request it may be ALLOWED_MS, or ALLOWED_SHARE of its time if that is
more. The measure is the 95th percentile of unaccounted time over what is allowed, for each tier.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.report import Measure, Note, write_result
from bench.sentences import sentences
from bench.services import stack
from nearsay.cli.stack import ConfigValue, StackOptions
from nearsay.client import AsyncClient
from nearsay.lab.report import percentile
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import STAGES, ServedTier

ALLOWED_MS, ALLOWED_SHARE = 0.5, 0.05
FLOOR, TARGET = 1.0, 0.5
WARM_UP = 20
TIERS: tuple[ServedTier, ...] = ("edge", "origin")


class Timed(msgspec.Struct, frozen=True):
    """One answered request: the client's time, and the stages it was told of."""

    client_ms: float
    stages_ms: dict[str, float]

    @property
    def over_allowed(self) -> float:
        """Unaccounted time over what is allowed."""
        allowed_ms = max(ALLOWED_MS, ALLOWED_SHARE * sum(self.stages_ms.values()))
        return abs(self.stages_ms.get("unaccounted", 0.0)) / allowed_ms


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this case."""
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/; default: our own sentences")
    parser.add_argument("--models", type=Path, action="append", default=[], help="folder of models, looked at first")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--stage-requests", type=int, default=300, help="of each tier")


def main(options: argparse.Namespace) -> Path:
    """Measure and write the result."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Path:
    texts, corpus = sentences(options.corpora, options.pair, options.stage_requests)
    config: dict[str, ConfigValue] = {"threads": 1, "device": "cpu", "pairs": [options.pair]}
    stack_options = StackOptions(
        port=0, models=tuple(options.models), overrides={"edge": config, "origin": {**config, "encoder_cache_mb": 0}}
    )
    tasks = Tasks()
    try:
        async with stack(stack_options, tasks) as services, AsyncClient(services.url, transport="link") as client:
            timed = {tier: await _timed(client, options.pair, tier, texts) for tier in TIERS}
    finally:
        await tasks.close()
    notes: dict[str, Note] = {"pair": options.pair, "corpus": corpus, "load_before": os.getloadavg()[0]}
    for tier, requests in timed.items():
        notes |= _notes(tier, requests)
    return write_result("stages", [_measured(tier, requests) for tier, requests in timed.items()], notes)


async def _timed(client: AsyncClient, pair: str, tier: ServedTier, texts: Sequence[str]) -> list[Timed]:
    source, target = pair.split("-")
    requests: list[Timed] = []
    for text in [*texts[:WARM_UP], *texts]:
        began = time.perf_counter()
        result = await client.translate(text, source, target, tier=tier)
        requests.append(Timed((time.perf_counter() - began) * 1e3, result.stages_ms))
    return requests[WARM_UP:]


def _measured(tier: ServedTier, requests: Sequence[Timed]) -> Measure:
    value = percentile(sorted(request.over_allowed for request in requests), 95)
    return Measure(f"{tier}_unaccounted_p95", value, "x allowed", FLOOR, TARGET, "lower")


def _notes(tier: ServedTier, requests: Sequence[Timed]) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    columns = {"client": [request.client_ms for request in requests]}
    columns["client_beyond_stages"] = [request.client_ms - sum(request.stages_ms.values()) for request in requests]
    columns |= {stage: [request.stages_ms.get(stage, 0.0) for request in requests] for stage in STAGES}
    for name, values_ms in columns.items():
        for percent in (50, 95):
            notes[f"{tier}_{name}_p{percent}_ms"] = round(percentile(sorted(values_ms), percent), 3)
    return notes
