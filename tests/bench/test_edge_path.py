"""The case's own arithmetic and order, on a model that takes no time; the real one is run by hand."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.edge_path import CLIENTS, WARM_UP, Rates, Raw, Times, _latencies, _measures, _rates, client_cost
from bench.sentences import sentences
from nearsay.client import Result, Translation
from nearsay.runtime.tasks import Tasks
from nearsay.text.engine import EngineInfo, LocalInput, LocalOutput


class FakeEngine:
    info = EngineInfo("fake", "cpu", "int8", 1, "m@1", "because")
    batch_max = CLIENTS

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        self.batches.append([item.text for item in batch])
        return [LocalOutput(item.ids, None, False) for item in batch]

    def close(self) -> None:
        pass


def raw(texts: Sequence[str]) -> tuple[Raw, FakeEngine]:
    engine = FakeEngine()
    return Raw(engine, {text: LocalInput(text, (1,)) for text in texts}), engine


STAGES_MS = {"parse": 0.25, "queue": 0.25, "link": 1.0, "render": 0.5, "edge_run": 9.0, "unaccounted": 0.1}


async def answer(text: str) -> Result:
    return Result((Translation(text, "en", "edge", "m@1"),), STAGES_MS, "r")


async def test_every_way_takes_every_sentence_and_warm_up_is_left_out() -> None:
    texts = [f"t{n}" for n in range(WARM_UP + 10)]
    peer, engine = raw(texts)
    times = await _latencies(peer, answer, answer, texts)
    assert len(times.raw) == len(times.link) == len(times.http) == len(texts)
    assert times.share_ms == [2.0] * len(texts)
    assert [batch[0] for batch in engine.batches] == texts[:WARM_UP] + texts


async def test_throughput_takes_batches_in_arrival_order() -> None:
    texts = [f"t{n}" for n in range(160)]
    peer, engine = raw(texts)
    sent: list[str] = []

    async def way(text: str) -> Result:
        sent.append(text)
        return await answer(text)

    rates = await _rates(peer, way, texts, rounds=2)
    assert sorted(sent) == sorted(texts)
    assert [text for batch in engine.batches for text in batch] == texts
    assert [len(batch) for batch in engine.batches] == [32, 32, 16] * 2
    assert rates.raw_per_s > 0 < rates.stack_per_s


def test_measures() -> None:
    times = Times(raw=[0.010] * 100, link=[0.013] * 99 + [0.020], http=[0.02] * 100, share_ms=[0.5] * 100)
    found = {measure.name: measure.value for measure in _measures(times, Rates(100.0, 80.0))}
    assert found == pytest.approx(
        {"short_p50_ratio": 1.3, "short_p99_ratio": 1.3, "throughput_ratio": 0.8, "proxy_link_p50_ms": 0.5}
    )


async def testclient_cost_against_an_echo() -> None:
    tasks = Tasks()
    costs = await client_cost("en-de", ["hello"] * 20, tasks)
    await tasks.close()
    assert {name for name, ms in costs.items() if isinstance(ms, float) and 0 < ms < 1_000} == {
        "client_link_p50_ms",
        "client_link_p99_ms",
        "client_http_p50_ms",
        "client_http_p99_ms",
    }


def test_sentences(tmp_path: Path) -> None:
    ours, source = sentences(None, "en-de", 100)
    assert len(ours) == 100 and source == "nearsay.lab.sentences"
    (tmp_path / "tatoeba").mkdir()
    with gzip.open(tmp_path / "tatoeba" / "tatoeba.en-de.dev.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("One.\tEins.\nTwö.\tZwei.\n")
    assert sentences(tmp_path, "en-de", 3) == (["One.", "Twö.", "One."], "tatoeba.en-de.dev.tsv.gz")
