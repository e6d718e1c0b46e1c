"""The CTranslate2 engine on a random model: order, bounds, and independence of the neighbours in a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest

from nearsay.text import ct2
from nearsay.text.ct2 import Ct2Engine, target_tokens_limit
from nearsay.text.engine import SOURCE_TOKENS_MAX, LocalInput, LocalOutput, open_engine
from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.registry import ModelEntry, Registry
from tests.kit.tiny_ct2 import make_tiny_pair

Make = Callable[..., ModelEntry]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_entry(**model: Any) -> ModelEntry:
        make_tiny_pair(tmp_path / "en-de", **model)
        entry = Registry.discover([tmp_path], defaults=False).find("en", "de", "edge")
        assert entry is not None
        return entry

    return make_entry


@pytest.fixture
def engine(make: Make) -> Iterator[Ct2Engine]:
    opened = open_engine(make(eos_bias=4.0), device="cpu")
    assert isinstance(opened, Ct2Engine)
    yield opened
    opened.close()


def sources(count: int, *, seed: int, longest: int = 40) -> list[LocalInput]:
    rng = np.random.default_rng(seed)
    return [LocalInput("", tuple(rng.integers(2, 90, size=rng.integers(1, longest)).tolist())) for _ in range(count)]


def test_the_engine_says_what_it_is(engine: Ct2Engine) -> None:
    info = engine.info
    assert (info.name, info.device, info.threads, info.model) == ("ctranslate2", "cpu", 1, "en-de-tiny@1")
    assert str(info) == f"ctranslate2 {info.precision} cpu"
    assert "the CPU was asked for" in info.why


def test_results_are_ids_in_the_order_of_the_inputs(engine: Ct2Engine) -> None:
    batch = sources(32, seed=1)
    outputs = engine.translate(batch)
    assert len({output.ids for output in outputs}) > 16, "the model must tell its inputs apart"
    assert engine.translate(batch[::-1]) == outputs[::-1]
    assert all(output.text is None and 0 not in output.ids for output in outputs)


@pytest.mark.parametrize("seed", range(4))
def test_a_text_comes_out_alone_as_it_does_among_31_others(engine: Ct2Engine, seed: int) -> None:
    batch = sources(32, seed=seed)
    together = engine.translate(batch)
    alone = [engine.translate([item])[0] for item in batch]
    assert together == alone


def test_an_output_at_its_limit_is_truncated_and_says_so(make: Make) -> None:
    engine = open_engine(make(eos_bias=-1e9), device="cpu")
    short, long = LocalInput("", (5,)), LocalInput("", tuple(range(2, 22)))
    for output, item in zip(engine.translate([short, long]), (short, long), strict=True):
        assert output.truncated
        assert len(output.ids) == target_tokens_limit(len(item.ids)), "its own limit, not the batch's"


def test_an_output_that_ends_is_not_truncated(make: Make) -> None:
    engine = open_engine(make(eos_bias=1e9), device="cpu")
    outputs = engine.translate(sources(8, seed=0))
    assert not any(output.truncated for output in outputs)


def test_a_source_over_the_limit_is_not_run_and_its_neighbours_are(engine: Ct2Engine) -> None:
    fits, too_long = LocalInput("", (7,) * SOURCE_TOKENS_MAX), LocalInput("", (7,) * (SOURCE_TOKENS_MAX + 1))
    outputs = engine.translate([too_long, fits])
    assert outputs[0] == LocalOutput(ids=(), text=None, truncated=True)
    assert outputs[1].ids


def test_nothing_in_nothing_out(engine: Ct2Engine) -> None:
    assert engine.translate([]) == []
    assert engine.translate([LocalInput(" ", ())]) == [LocalOutput(ids=(), text=None, truncated=False)]


def test_a_batch_over_the_maximum_is_our_mistake(engine: Ct2Engine) -> None:
    with pytest.raises(AssertionError):
        engine.translate(sources(engine.batch_max + 1, seed=0))


def test_every_source_has_one_eos_whoever_adds_it(make: Make) -> None:
    entry = make(eos_bias=4.0)
    batch = sources(8, seed=3)
    ours = open_engine(entry, device="cpu").translate(batch)
    config = json.loads((entry.path / "config.json").read_text())
    (entry.path / "config.json").write_text(json.dumps({**config, "add_source_eos": True}))
    assert open_engine(entry, device="cpu").translate(batch) == ours


def test_a_damaged_model_is_refused(make: Make) -> None:
    entry = make()
    (entry.path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ModelError, match="refuses"):
        open_engine(entry, device="cpu")
    (entry.path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json"):
        open_engine(entry, device="cpu")


def test_auto_takes_the_cpu_where_there_is_no_gpu(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    assert "no CUDA device" in open_engine(make(), device="auto").info.why
    with pytest.raises(EngineUnavailable, match=r"nearsay\[edge-gpu\]"):
        open_engine(make(), device="cuda")


@pytest.mark.skipif(ctranslate2.get_cuda_device_count() > 0, reason="needs a machine where CUDA can't be opened")
def test_auto_falls_back_and_says_why_when_cuda_does_not_open(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    info = open_engine(make(), device="auto").info
    assert info.device == "cpu" and "CUDA doesn't work" in info.why
    with pytest.raises(EngineUnavailable, match="CUDA doesn't work"):
        open_engine(make(), device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(ctranslate2.get_cuda_device_count() == 0, reason="needs a CUDA device")
def test_a_gpu_runs_float16(make: Make) -> None:
    engine = open_engine(make(eos_bias=4.0), device="auto")
    assert (engine.info.device, engine.info.precision) == ("cuda", "float16")
    assert len(engine.translate(sources(32, seed=0))) == 32


def test_groups_part_short_from_long_and_leave_out_what_is_not_run() -> None:
    lengths = [14, 15, 0, 3, SOURCE_TOKENS_MAX + 1, SOURCE_TOKENS_MAX]
    assert ct2._alike(lengths) == [[0, 3], [1, 5]]
    assert ct2._alike([0]) == []
