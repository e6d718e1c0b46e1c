from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.messages import STAGES, Translated
from proxy.core.stages import Timeline, server_timing


def answer(accounted_ms: float, **stages_ms: float) -> Translated:
    return Translated((), stages_ms, accounted_ms)


def test_every_moment_has_its_stage() -> None:
    timeline = Timeline(arrived=10.0, parsed=10.001, sent=10.003, answered=10.033)
    edge = answer(25.0, segment=1.0, tokenise=2.0, edge_queue=4.0, edge_run=16.0, detokenise=1.0, join=0.5)
    assert timeline.stages_ms(edge, 10.034) == {
        "parse": 1.0,
        "queue": 2.0,
        "link": 5.0,
        "segment": 1.0,
        "tokenise": 2.0,
        "edge_queue": 4.0,
        "edge_run": 16.0,
        "detokenise": 1.0,
        "join": 0.5,
        "render": 1.0,
        "unaccounted": 0.5,
    }
    assert timeline.e2e_ms(10.034) == pytest.approx(34.0)


@given(
    st.lists(st.floats(0, 10), min_size=4, max_size=4),
    st.dictionaries(st.sampled_from(STAGES[3:-2]), st.floats(0, 100)),
    st.floats(0, 500),
)
def test_stages_sum_to_the_end_to_end_time(gaps: list[float], edge: dict[str, float], spare_ms: float) -> None:
    parsed = 5.0 + gaps[0]
    sent = parsed + gaps[1]
    accounted_ms = sum(edge.values()) + spare_ms
    answered = sent + gaps[2] + accounted_ms / 1000.0
    rendered = answered + gaps[3]
    timeline = Timeline(5.0, parsed, sent, answered)
    stages_ms = timeline.stages_ms(answer(accounted_ms, **edge), rendered)
    assert sum(stages_ms.values()) == pytest.approx(timeline.e2e_ms(rendered), abs=0.02)
    assert stages_ms["unaccounted"] == pytest.approx(spare_ms, abs=0.02)
    assert list(stages_ms) == [stage for stage in STAGES if stage in stages_ms]


def test_a_stage_nobody_knows_is_dropped() -> None:
    stages_ms = Timeline(0.0, 0.0, 0.0, 0.001).stages_ms(answer(1.0, edge_run=0.4, dreaming=0.6), 0.001)
    assert "dreaming" not in stages_ms
    assert stages_ms["unaccounted"] == pytest.approx(0.6)


def test_server_timing_header() -> None:
    assert server_timing({"parse": 0.25, "edge_run": 16.0}, 17.5) == "parse;dur=0.25, edge_run;dur=16, total;dur=17.500"
