"""The benchmark of the tail, in small: the same code, fewer requests, and what must hold whatever the seed."""

from __future__ import annotations

import asyncio

import pytest

from bench.sim_edges import LINK_S, SimEdge
from bench.tail import _hedging, _killed_edge
from bench.tail_world import now
from nearsay.lab.virtual_loop import run
from nearsay.wire.messages import Translate, Translated


def request(number: int) -> Translate:
    return Translate(str(number), ("x",), "en", "de")


def test_an_edge_has_slots_a_queue_and_its_own_luck() -> None:
    async def main() -> list[tuple[float, float, float]]:
        edge = SimEdge(0, seed=1, slots=1, service_s=0.01)
        streams = [await edge.open(request(number)) for number in range(2)]
        ends = []
        for stream in streams:
            answer = await stream.receive()
            assert isinstance(answer, Translated)
            ends.append((now(), answer.stages_ms["edge_queue"], answer.stages_ms["edge_run"]))
        assert abs(edge.busy_s - sum(run_ms for *_, run_ms in ends) / 1e3) < 1e-9
        return ends

    (first_end, first_queue, first_run), (second_end, second_queue, second_run) = ends = run(main())
    assert first_queue == 0 and abs(second_queue - first_run) < 1e-6
    assert abs(first_end - 2 * LINK_S - first_run / 1e3) < 1e-6
    assert abs(second_end - first_end - second_run / 1e3) < 1e-6
    assert run(main()) == ends  # the same seed, the same luck


def test_what_is_cancelled_frees_its_slot_a_links_delay_later() -> None:
    async def main() -> float:
        edge = SimEdge(0, seed=1, slots=1, service_s=10.0)
        stream = await edge.open(request(0))
        await asyncio.sleep(0.1)
        stream.cancel()
        await asyncio.sleep(1.0)
        return edge.busy_s

    assert abs(run(main()) - 0.1) < 1e-6


def test_hedging_takes_the_tail_within_its_budget() -> None:
    (ratio, extra), _ = _hedging(seed=3, requests=4_000)
    assert ratio.passes and extra.passes


def test_edges_that_go_wrong_are_routed_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.tail.WARM_S", 0.5)
    monkeypatch.setattr("bench.tail.AFTER_S", 1.0)
    (failed, normal), notes = _killed_edge(seed=3)
    assert failed.value == 0 == notes["silent_edge_failed"] and normal.passes
