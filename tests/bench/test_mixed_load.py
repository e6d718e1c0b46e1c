"""The case's own arithmetic and order, without services; the real thing is run by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from bench.mixed_load import BULK_IN_FLIGHT, BULK_TEXTS, Bulk, Run, Slices, _measures, _notes, _order
from nearsay.client import AsyncClient, Result, Translation
from nearsay.lab.report import Sample
from nearsay.runtime.tasks import Tasks


def slices(latencies_ms: list[float], *, chars: int = 0, seconds: float = 10.0) -> Slices:
    samples = [Sample(1.0, 1.001, 1.0 + ms / 1e3, "ok", "edge", {"edge_run": ms / 2}) for ms in latencies_ms]
    return Slices(samples, seconds, chars, chars // 10, {"edge": seconds / 2})


def test_every_round_has_every_arm_and_none_is_always_first() -> None:
    rounds = [_order(number) for number in range(6)]
    assert all(Counter(each) >= Counter(["idle", "loaded", "alone"]) for each in rounds)
    assert [each[0] for each in rounds] == ["idle", "loaded", "alone"] * 2
    assert Counter(arm for each in rounds for arm in each)["contended"] == 2


def test_ratios_are_loaded_over_idle_and_both_over_alone() -> None:
    arms = {
        "idle": slices([10.0] * 990 + [20.0] * 10),
        "loaded": slices([12.0] * 980 + [30.0] * 20, chars=8_000),
        "alone": slices([], chars=3_000, seconds=3.0),
        "contended": slices([15.0] * 100),
    }
    run = cast(
        Run, SimpleNamespace(arms=arms, tier="edge", corpus="a", bulk_corpus="b", rate_per_s=5.0, idle_service_ms=9.0)
    )
    p99, batch = _measures(run)
    assert (p99.name, p99.value) == ("edge_p99_ratio", pytest.approx(3.0)) and not p99.passes
    assert (batch.name, batch.value) == ("edge_batch_ratio", pytest.approx(0.8)) and batch.passes
    notes = _notes(run)
    assert notes["edge_idle_requests"] == 1000 and notes["edge_loaded_p50_ms"] == pytest.approx(12.0)
    assert notes["edge_loaded_edge_run_p99_ms"] == pytest.approx(15.0)
    assert notes["edge_idle_client_late_p99_ms"] == pytest.approx(1.0)
    assert notes["edge_core_taken_p99_ratio"] == pytest.approx(1.5)
    assert notes["edge_loaded_batch_sentences_per_s"] == pytest.approx(80.0)


class Client:
    """Answers in the next turn of the loop; `asked` counts texts by class."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def translate(self, texts: list[str], *_: str, priority: str, **__: object) -> Result:
        await asyncio.sleep(0)
        self.asked[priority] += len(texts)
        return Result(tuple(Translation(text, "en", "edge", "m@1") for text in texts), {}, "r")


async def test_bulk_is_a_closed_loop_that_counts_what_came_back() -> None:
    client, tasks = Client(), Tasks()
    bulk = Bulk(cast(AsyncClient, client), ["one", "three"], "en-de", "edge")
    async with bulk.running(tasks):
        assert bulk.texts >= BULK_TEXTS * BULK_IN_FLIGHT
    assert client.asked["batch"] >= bulk.texts and bulk.chars == bulk.texts * 4
    await tasks.close()
