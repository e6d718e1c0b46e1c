"""The real thing, small: a process's config, a real engine on its thread, a drain."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from edge_worker.__main__ import run as run_command
from edge_worker.app import build
from edge_worker.config import EdgeConfig
from edge_worker.core.placement import Policy
from nearsay.runtime.config import ConfigError, load_config
from nearsay.runtime.link import LinkLimits, Peer, memory_pair
from nearsay.runtime.link import Transport as LinkTransport
from nearsay.runtime.tasks import Tasks
from nearsay.text.registry import Registry
from nearsay.wire.messages import Hello, Translate, Translated
from tests.kit.tiny_ct2 import make_tiny_pair


def test_config_reads_nested_bounds(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('origins = ["ws://a/link"]\nthreads = 2\n[placement]\nlong_tokens = 9\n')
    config = load_config(file, EdgeConfig, {"batch.rows_max": "8", "pairs": "en-de,en-pt"})
    assert (config.origins, config.placement, config.pairs) == (
        ("ws://a/link",),
        Policy(long_tokens=9),
        ("en-de", "en-pt"),
    )
    assert (config.batch.rows_max, config.threads, config.port) == (8, 2, 8110)


def test_bad_config_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="long_token"):
        load_config(None, EdgeConfig, {"placement.long_token": 1})
    with pytest.raises(ConfigError, match="threads"):
        load_config(None, EdgeConfig, {"threads": 0})
    assert run_command(["--set", "nonsense=1"]) == 2
    assert "nonsense" in capsys.readouterr().err


async def test_a_pair_that_nobody_has_is_refused(tmp_path: Path) -> None:
    edge = build(EdgeConfig(pairs=("en-xx",)), discover=lambda: Registry([]))
    with pytest.raises(ConfigError, match="en-xx"):
        await edge.start()
    await edge.stop()


async def test_an_edge_that_could_serve_nothing_does_not_start() -> None:
    edge = build(EdgeConfig(), discover=lambda: Registry([], problems=["en-de: no model.toml"]))
    with pytest.raises(ConfigError, match=r"no model to serve.*en-de: no model\.toml"):
        await edge.start()
    await edge.stop()


async def test_a_real_model_from_disk_to_answer_to_drain(tmp_path: Path) -> None:
    make_tiny_pair(tmp_path / "en-de", eos_bias=9.0)
    make_tiny_pair(tmp_path / "en-fr", target="fr")
    (tmp_path / "en-fr" / "student" / "model.bin").write_bytes(b"damaged")
    registry = Registry.discover([tmp_path], defaults=False)
    assert len(registry.entries) == 2
    edge, tasks = build(EdgeConfig(), discover=lambda: registry), Tasks()

    async def connect(_: str) -> LinkTransport:
        near, far = memory_pair()
        tasks.spawn(edge.links.serve(far), name="edge link")
        return near

    await edge.start()
    edge.lifecycle.move("ready")
    peer = Peer(
        "ws://edge/link",
        hello=lambda: Hello("proxy"),
        tasks=tasks,
        limits=LinkLimits(),
        clock=time.monotonic,
        connect=connect,
    )
    up = asyncio.Event()
    peer.on_change(up.set)
    await peer.start()
    try:
        async with asyncio.timeout(20):
            while not peer.ready:
                await up.wait()
                up.clear()
            assert peer.hello is not None
            assert [model.name for model in peer.hello.models] == ["en-de-tiny@1"], "a damaged model is left out"
            stream = await peer.open(Translate("r", ("the cat sat on the mat",), "en", "de"))
            answer = await stream.receive()
            assert isinstance(answer, Translated) and answer.translations[0].model == "en-de-tiny@1"
            assert sum(answer.stages_ms.values()) == pytest.approx(answer.accounted_ms, abs=0.01)
            text = answer.translations[0].text
            for _ in range(3):  # by the first engine, and by the one in the background once that is open
                stream = await peer.open(Translate("r", ("the cat sat on the mat",), "en", "de", priority="batch"))
                answer = await stream.receive()
                assert isinstance(answer, Translated) and answer.translations[0].text == text
            await edge.drain()
            assert edge.links.links == 0
    finally:
        await peer.close()
        await edge.stop()
        await tasks.close()
