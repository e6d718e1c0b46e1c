"""An engine behind a pipe: the same answers and errors as on a thread, and what a death of it costs."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.text import engine_process
from nearsay.text.engine import LocalInput, LocalOutput, open_engine
from nearsay.text.errors import EngineDied, EngineUnavailable, ModelError
from nearsay.text.process import ProcessEngine, entry_of, read_frame, write_frame
from nearsay.text.registry import ModelEntry, load_vocabs

GREETING = "Good morning, how are you?"


@pytest.fixture
def engine(entry: ModelEntry) -> Iterator[ProcessEngine]:
    opened = open_engine(entry)
    assert isinstance(opened, ProcessEngine)
    yield opened
    opened.close()


def greeting(entry: ModelEntry) -> LocalInput:
    return LocalInput(GREETING, tuple(load_vocabs(entry)[0].encode(GREETING)))


def child_of(engine: ProcessEngine) -> int:
    assert engine._process is not None
    return engine._process.pid


def test_it_translates_and_says_what_runs(engine: ProcessEngine, entry: ModelEntry) -> None:
    assert engine.translate([greeting(entry)]) == [LocalOutput((), "Bom dia, como você está?", False)]
    assert (str(engine.info), engine.batch_max) == ("fxtranslate int8 cpu", 1)


def test_the_interpreter_is_free_while_it_runs(engine: ProcessEngine, entry: ModelEntry) -> None:
    """What this room exists for. The engine is stopped, so its caller waits; only a free interpreter lets it go on."""
    os.kill(child_of(engine), signal.SIGSTOP)
    outputs: list[LocalOutput] = []
    caller = threading.Thread(target=lambda: outputs.extend(engine.translate([greeting(entry)])))
    caller.start()
    assert not outputs
    os.kill(child_of(engine), signal.SIGCONT)
    caller.join(30)
    assert [output.text for output in outputs] == ["Bom dia, como você está?"]


def test_a_dead_process_costs_its_batch_and_no_more(engine: ProcessEngine, entry: ModelEntry) -> None:
    first = child_of(engine)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineDied) as caught:
        engine.translate([greeting(entry)])
    assert caught.value.returncode == -signal.SIGKILL
    assert engine.translate([greeting(entry)])[0].text == "Bom dia, como você está?"
    assert child_of(engine) != first


def test_a_stop_meant_for_the_edge_does_not_reach_it(engine: ProcessEngine, entry: ModelEntry) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child_of(engine), number)
    assert engine.translate([greeting(entry)])[0].text


def test_closing_ends_the_process(entry: ModelEntry) -> None:
    opened = open_engine(entry)
    assert isinstance(opened, ProcessEngine)
    process = opened._process
    opened.close()
    opened.close()
    assert process is not None and process.returncode == 0


def test_opening_raises_what_the_engine_raises(entry: ModelEntry, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't be read") as caught:
        open_engine(msgspec.structs.replace(entry, path=tmp_path / "missing.bin"))
    assert caught.value.path == tmp_path / "missing.bin"
    with pytest.raises(EngineUnavailable, match="CPU only"):
        open_engine(entry, device="cuda")


def test_without_fxtranslate_the_extra_is_named(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nearsay.text.fx", raising=False)
    monkeypatch.setitem(sys.modules, "fxtranslate", None)
    answers = io.BytesIO()
    assert engine_process._open([{"engine": "fxtranslate"}, "auto"], answers) is None
    answers.seek(0)
    kind, name, _, extra = read_frame(answers)
    assert (kind, name, extra) == ("unavailable", "fxtranslate", "edge")


def test_an_entry_crosses_whole(entry: ModelEntry) -> None:
    bare = msgspec.structs.replace(entry, sha256={})
    plain = msgspec.to_builtins(bare, enc_hook=str)
    assert entry_of(plain) == bare


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists, max_leaves=20))
def test_frames_come_back_as_they_were(value: object) -> None:
    pipe = io.BytesIO()
    write_frame(pipe, value)
    write_frame(pipe, value)
    pipe.seek(0)
    assert read_frame(pipe) == value == read_frame(pipe)
    with pytest.raises(EOFError):
        read_frame(pipe)


@given(st.binary(max_size=40))
def test_a_broken_frame_is_an_end(data: bytes) -> None:
    whole = io.BytesIO()
    write_frame(whole, data)
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(whole.getvalue()[:-1]))
