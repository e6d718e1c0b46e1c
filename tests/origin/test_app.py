"""The origin as a process: built from config, served over real sockets, drained and stopped."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from nearsay.nmt.weights import save_native
from nearsay.runtime.config import ConfigError, load_config
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Finished, Submit, pack_ids, unpack_ids
from origin.__main__ import run as run_command
from origin.app import Origin, build
from origin.config import OriginConfig, thread_count
from origin.engine.base import Engine
from origin.engine.echo import EchoEngine
from tests.origin import tiny
from tests.origin.build import EOS, model, submit
from tests.origin.process import ask, running
from tests.runtime.kit import TIMEOUT_S, turns, until

CONFIG = OriginConfig(port=0, admin_port=0, drain_timeout_s=5.0, report_interval_s=0.01, slots=8)


@pytest.fixture
def pair_folder(tmp_path: Path) -> Path:
    """A pair folder with a tiny origin model."""
    folder = tmp_path / "en-de"
    save_native(tiny.model(), folder / "teacher", "float32")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_text(name)
    (folder / "model.toml").write_text(
        'source = "en"\ntarget = "de"\n[vocab]\nsource = "source.spm"\ntarget = "target.spm"\n'
        '[origin]\nid = "tiny"\nversion = "1"\nengine = "nearsay"\npath = "teacher"\n'
    )
    return folder


def echoing(engine: Engine | None = None, config: OriginConfig = CONFIG) -> Origin:
    return build(config, engine=engine or EchoEngine([model(slots=8)]))


async def test_hello_answers_and_load_reports() -> None:
    async with running(echoing()) as service:
        peer = service.peer
        assert peer.hello is not None and (peer.hello.role, peer.hello.state) == ("origin", "ready")
        assert [m.name for m in peer.hello.models] == ["m@1"]
        await until(peer.on_change, lambda: peer.load is not None)
        assert peer.load is not None
        assert (peer.load.state, peer.load.slots_free, peer.load.wants_drafts) == ("ready", 8, ("m@1",))
        answers = await asyncio.gather(*(ask(peer, submit((n, 6, EOS))) for n in range(1, 40)))
        assert [tuple(unpack_ids(answer.ids)) for answer in answers] == [(6, n) for n in range(1, 40)]
        for answer in answers:
            assert answer.accounted_ms == pytest.approx(sum(answer.stages_ms.values()))
            assert answer.stages_ms["origin_link"] > 0  # the way from the engine's thread
        service.origin._reporter.report()
        gauges = service.origin.metrics.snapshot()["gauges"]
        assert gauges["steps"] > 0 and gauges["slots_free"] == 8 and gauges["failed_steps"] == 0
        assert (gauges["refused_full"], gauges["evictions"]) == (0, 0)


async def test_a_torch_origin_from_a_model_folder(pair_folder: Path) -> None:
    config = load_config(
        None, OriginConfig, {"port": 0, "admin_port": 0, "models": [str(pair_folder)], "pairs": "en-de", "slots": 4}
    )
    origin = build(config)
    source = tiny.sources(2)[1]
    async with running(origin) as service:
        assert service.peer.hello is not None
        (info,) = service.peer.hello.models
        assert (info.name, info.engine) == ("tiny@1", "torch float32 cpu")
        message = Submit("r", info.name, info.src_vocab_hash, info.trg_vocab_hash, pack_ids(source))
        answer = await ask(service.peer, message)
        assert tuple(unpack_ids(answer.ids)) == tiny.plain(tiny.model(), source)


async def test_reuse_shows_in_the_stats(pair_folder: Path) -> None:
    """A sentence typed on in a session, sent again, and asked by somebody else; each id is plain greedy's."""
    origin = build(
        load_config(None, OriginConfig, {"port": 0, "admin_port": 0, "models": [str(pair_folder)], "pairs": "en-de"})
    )
    whole = next(source for source in tiny.sources(12) if len(source) > 8)
    typed = [[*whole[:length], EOS] for length in range(1, len(whole))]
    async with running(origin) as service:
        assert service.peer.hello is not None
        (info,) = service.peer.hello.models
        for session, tenant in (("s", "t"), ("s", "t"), ("", "t"), ("", "u")):
            for source in typed:
                message = Submit(
                    "r",
                    info.name,
                    info.src_vocab_hash,
                    info.trg_vocab_hash,
                    pack_ids(source),
                    session=session,
                    tenant=tenant,
                )
                answer = await ask(service.peer, message)
                if answer.finish_reason == "stop":
                    assert tuple(unpack_ids(answer.ids)) == tiny.plain(tiny.model(), source)
        origin._reporter.report()
        stats = origin.metrics.snapshot()
    counters, gauges = stats["counters"], stats["gauges"]
    assert counters["sequences{reason=session}"] > 0
    assert counters["drafted_sequences{source=session}"] > 0
    assert gauges["sources_encoded"] == 2 * len(typed) and gauges["sources_reused"] >= len(typed)
    assert gauges["sessions"] == 1 and gauges["session_bytes"] > 0 and gauges["past_answers_bytes"] > 0
    assert gauges["session_segments"] > gauges["session_segments_reused"] == counters["sequences{reason=session}"]
    assert 0 < gauges["session_passes"] < gauges["session_plain_passes"] and gauges["session_leaning"] == 0
    assert 0 < gauges["session_draft_tokens_accepted"] <= gauges["session_draft_tokens"]
    assert counters["drafted_sequences{source=past}"] > 0
    lengths = [
        value for name, value in gauges.items() if name.startswith("accept_length{") and "source=session" in name
    ]
    assert max(lengths) > 0


async def test_weights_that_do_not_fit_are_a_config_error(pair_folder: Path) -> None:
    (pair_folder / "teacher" / "config.json").write_text('{"model_type": "nearsay"}')
    origin = build(load_config(None, OriginConfig, {"port": 0, "models": [str(pair_folder)], "pairs": ["en-de"]}))
    with pytest.raises(ConfigError):
        async with running(origin):
            pass


async def test_damaged_weights_are_refused_before_they_are_read(pair_folder: Path) -> None:
    with (pair_folder / "model.toml").open("a") as file:
        file.write('[sha256]\n"teacher/model.safetensors" = "' + "0" * 64 + '"\n')
    origin = build(load_config(None, OriginConfig, {"port": 0, "models": [str(pair_folder)], "pairs": ["en-de"]}))
    with pytest.raises(ConfigError, match="sha256"):
        async with running(origin):
            pass


async def test_drain_lets_in_flight_work_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is held inside a step until the drain has begun."""
    held = threading.Event()

    def wait(_: float) -> None:
        assert held.wait(TIMEOUT_S)

    engine = EchoEngine([model(slots=8)], step_s=1.0, spend=wait)
    async with running(echoing(engine)) as service:
        stream = await service.peer.open(submit((5, 6, EOS)))
        await turns(lambda: len(service.origin.server) == 1)
        service.stop.ask()
        await turns(lambda: not service.peer.ready)
        held.set()
        async with asyncio.timeout(TIMEOUT_S):
            answer = await stream.receive()
            await service.done
        assert isinstance(answer, Finished) and tuple(unpack_ids(answer.ids)) == (6, 5)
    assert service.origin.lifecycle.state == "stopped"


async def test_a_dead_engine_thread_answers_everyone_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(echoing()) as service:

        def broken(*_: object) -> None:
            raise AssertionError("a scheduler's mistake")

        monkeypatch.setattr(service.origin.engine_loop.scheduler, "plan", broken)
        with pytest.raises(NearsayError) as caught:
            await ask(service.peer, submit())
        assert caught.value.code == "unavailable"
        async with asyncio.timeout(TIMEOUT_S):
            await service.done
        assert service.origin.lifecycle.failure == "the engine has stopped"


async def test_without_a_thread_a_simulation_steps() -> None:
    origin = build(CONFIG, engine=EchoEngine([model(slots=8)]), clock=lambda: 5.0, threaded=False)
    await origin.start()
    assert origin.engine_loop.load_now.slots_free == 8
    origin.engine_loop.step()
    await origin.stop()


async def test_a_token_budget_that_some_request_would_exceed_is_a_config_error() -> None:
    config = load_config(None, OriginConfig, {"port": 0, "admin_port": 0, "scheduler.encode_tokens_per_step": 511})
    with pytest.raises(ConfigError, match="512"):
        async with running(echoing(config=config)):
            pass


def test_config_names_its_mistakes() -> None:
    with pytest.raises(ConfigError, match="slots"):
        load_config(None, OriginConfig, {"slots": 0})
    with pytest.raises(ConfigError, match="queue_mx"):
        load_config(None, OriginConfig, {"scheduler.queue_mx": 2})
    with pytest.raises(ConfigError, match="scheduler"):
        load_config(None, OriginConfig, {"scheduler.queue_max": 0})
    with pytest.raises(ConfigError, match="xx-yy"):
        build(OriginConfig(pairs=("xx-yy",)))


def test_the_rule_for_threads() -> None:
    assert [thread_count(0, cores) for cores in (1, 2, 3, 8)] == [1, 1, 1, 4]
    assert thread_count(3, 2) == 3


def test_the_command_line_reports_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--set", "sloots=4"]) == 2
    assert "did you mean 'slots'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command(["--set", "nothing"])
