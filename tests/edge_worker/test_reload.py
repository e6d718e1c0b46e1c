"""Newer models under an edge that serves: its own, and those of its origins."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from edge_worker.models import LOOKS_MAX
from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import Stream
from nearsay.runtime.model_admin import ModelsReport
from nearsay.text.engine import LocalInput
from nearsay.text.entry import ModelEntry
from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import InvalidRequest, NearsayError, Unavailable
from nearsay.wire.messages import ModelInfo, Submit
from tests.edge_worker.room import RUN_S, Room, edge_room, entry, reverse
from tests.kit.fake_engine import FakeEngine

CAT = "the cat sat on the mat"


def standing(report: ModelsReport) -> dict[str, str]:
    return {model.name: model.problem or model.standing for model in report.models}


def renamed(info: ModelInfo, version: str) -> ModelInfo:
    return msgspec.structs.replace(info, version=version)


def counters(room: Room) -> dict[str, float]:
    found: dict[str, float] = room.edge.metrics.snapshot()["counters"]
    return found


async def model_of(room: Room, text: str = CAT, **fields: object) -> str:
    (translation,) = (await room.translate(text, **fields)).translations
    return translation.model


# ---- models of ours --------------------------------------------------------------------------------------------------


def test_a_newer_student_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path) as room:
            old = room.engines["en-de"]
            assert await model_of(room) == "en-de-edge@1"
            room.disk[:] = [entry(tmp_path, "edge", version="2")]
            assert await model_of(room) == "en-de-edge@1", "nothing changes before it is told to"
            report = await room.edge.reloader.reload()
            assert (report.swapped, standing(report)["en-de-edge@2"]) == (
                (("en-de-edge@1", "en-de-edge@2"),),
                "serving",
            )
            assert await model_of(room) == "en-de-edge@2"
            await room.until(lambda: old.closed)
            assert standing(room.edge.reloader.report()) == {"en-de-edge@2": "serving"}
            assert not room.engines["en-de"].closed
            await room.until(lambda: room.peer.load is not None and [m.version for m in room.peer.load.models] == ["2"])
            assert (await room.edge.reloader.reload()).swapped == (), "nothing is new"

    run(main())


def test_what_the_old_one_was_given_it_finishes(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, config={"batch": {"rows_max": 1}}) as room:
            old = room.engines["en-de"]
            waiting = [room.tasks.spawn(room.translate(f"the cat {n}"), name=str(n)) for n in range(6)]
            await asyncio.sleep(RUN_S / 2)
            room.disk[:] = [entry(tmp_path, "edge", version="2")]
            report = await room.edge.reloader.reload()
            assert standing(report) == {"en-de-edge@2": "serving", "en-de-edge@1": "draining"}
            assert not old.closed
            answers = await asyncio.gather(*waiting)
            assert {answer.translations[0].model for answer in answers} == {"en-de-edge@1"}
            await room.until(lambda: old.closed)

    run(main())


def test_under_a_steady_load_nobody_fails(tmp_path: Path) -> None:
    """Long texts whose segments come before, during and after three swaps, one with another vocabulary."""

    async def main() -> None:
        async with edge_room(tmp_path, engine=lambda e: FakeEngine(model=e.name, ids_out=True)) as room:
            text = " ".join(f"The cat sat on the mat {'again ' * (n % 3)}and the dog looked." for n in range(40))
            seen: set[str] = set()
            entry(tmp_path, "edge", vocab="w.spm")
            vocabs = {version: Vocab.load(tmp_path / f"{'w' if version == '3' else 'v'}.spm") for version in "1234"}
            assert len({vocab.hash for vocab in vocabs.values()}) == 2

            def expected(model: str, source: str) -> str:
                vocab = vocabs[model.rpartition("@")[2]]
                return vocab.decode(vocab.encode(source)[::-1])

            async def one(delay_s: float) -> None:
                await asyncio.sleep(delay_s)
                (translation,) = (await room.translate(text, segments=True)).translations
                for segment in translation.segments:
                    assert segment.text == expected(segment.model, text[segment.start : segment.end])
                    seen.add(segment.model)

            async def swaps() -> None:
                for version, vocab in (("2", "v.spm"), ("3", "w.spm"), ("4", "v.spm")):
                    await asyncio.sleep(0.15)
                    room.disk[:] = [entry(tmp_path, "edge", version=version, vocab=vocab)]
                    assert (await room.edge.reloader.reload()).good

            async with asyncio.TaskGroup() as group:
                group.create_task(swaps())
                for n in range(20):
                    group.create_task(one(n * 0.04))
            assert len(seen) == 4, seen
            await room.until(lambda: set(standing(room.edge.reloader.report()).values()) == {"serving"})

    run(main())


def unavailable(_: ModelEntry) -> FakeEngine:
    raise EngineUnavailable("fake", "it can't run here")


def damaged(each: ModelEntry) -> FakeEngine:
    raise ModelError(each.path, "it is no model")


def mistaken(_: ModelEntry) -> FakeEngine:
    raise ZeroDivisionError


def dies(each: ModelEntry) -> FakeEngine:
    def spend(batch: list[LocalInput]) -> None:
        raise RuntimeError("boom")

    return FakeEngine(model=each.name, spend=spend)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "problem"),
    [(unavailable, "unavailable"), (damaged, "damaged"), (dies, "broken"), (mistaken, "broken")],
)
def test_whatever_is_wrong_with_a_new_one_the_old_one_goes_on(engine: object, problem: str, tmp_path: Path) -> None:
    async def main() -> None:
        engines = {"1": lambda e: FakeEngine(model=e.name), "2": engine}
        async with edge_room(tmp_path, engine=lambda e: engines[e.version](e)) as room:  # type: ignore[operator]
            room.disk[:] = [entry(tmp_path, "edge", version="2")]
            report = await room.edge.reloader.reload()
            assert standing(report) == {"en-de-edge@1": "serving", "en-de-edge@2": problem}
            assert not report.good and report.swapped == ()
            assert await model_of(room) == "en-de-edge@1"
            assert counters(room)[f"model_loads{{result={problem}}}"] == 1
            notes = {"models": ["en-de-edge@1"], "models_left_out": {"en-de-edge@2": problem}}
            assert room.edge.lifecycle.notes == notes
            assert len(room.edge._shelf.models) == 1, "nothing of it is left open"

    run(main())


def test_files_that_change_while_they_are_read(tmp_path: Path) -> None:
    opened: list[FakeEngine] = []

    def meanwhile(each: ModelEntry) -> FakeEngine:
        opened.append(FakeEngine(model=each.name))
        if each.version == "2":
            os.utime(tmp_path / "v.spm", (1, 1))
        return opened[-1]

    async def main() -> None:
        async with edge_room(tmp_path, engine=meanwhile) as room:
            room.disk[:] = [entry(tmp_path, "edge", version="2")]
            assert standing(await room.edge.reloader.reload())["en-de-edge@2"] == "damaged"
            assert [engine.closed for engine in opened] == [False, True]

    run(main())


def test_back_and_forth_while_the_old_ones_still_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, config={"batch": {"rows_max": 1}}) as room:
            waiting = []
            for version in ("2", "1", "2", "1", "3"):
                waiting += [room.tasks.spawn(room.translate(f"the cat {n}"), name=str(n)) for n in range(4)]
                await asyncio.sleep(RUN_S / 2)
                room.disk[:] = [entry(tmp_path, "edge", version=version)]
                assert (await room.edge.reloader.reload()).good
            models = [answer.translations[0].model for answer in await asyncio.gather(*waiting)]
            assert models == [f"en-de-edge@{version}" for version in "12121" for _ in range(4)]
            await room.until(lambda: len(room.edge._shelf.models) == 1)

    run(main())


def test_damaged_files_and_a_version_used_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path) as room:
            lied = msgspec.structs.replace(entry(tmp_path, "edge", version="2"), sha256={tmp_path / "v.spm": "0" * 64})
            room.disk[:] = [lied]
            assert standing(await room.edge.reloader.reload())["en-de-edge@2"] == "damaged"
            room.disk[:] = [entry(tmp_path, "edge", vocab="w.spm")]
            report = await room.edge.reloader.reload()
            assert [(m.standing, m.problem) for m in report.models] == [("serving", ""), ("left_out", "version_reused")]
            assert await model_of(room) == "en-de-edge@1"

    run(main())


def test_pairs_come_later_and_those_that_are_gone_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path) as room:
            room.disk[:] = [entry(tmp_path, "edge", target="fr")]
            report = await room.edge.reloader.reload()
            assert standing(report) == {"en-de-edge@1": "gone", "en-fr-edge@1": "serving"}
            assert await model_of(room) == "en-de-edge@1"
            assert await model_of(room, target="fr") == "en-fr-edge@1"
        async with edge_room(tmp_path, config={"pairs": ["en-de"]}) as room:
            room.disk.clear()
            report = await room.edge.reloader.reload()
            assert standing(report) == {"en-de-edge@1": "serving"} and "en-de" in report.notes[0]
            assert await model_of(room) == "en-de-edge@1"

    run(main())


# ---- models of origins -----------------------------------------------------------------------------------------------


async def stale(stream: Stream, submit: Submit) -> None:
    """An origin that has version 2 by now, and says so to who asks for version 1."""
    if submit.model.endswith("@1"):
        raise InvalidRequest(submit.model, code="unknown_model")
    await reverse(stream, submit)


def test_a_newer_model_of_an_origin_is_asked_from_its_report_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, origins=1) as room:
            assert await model_of(room, tier="origin") == "en-de-origin@1"
            room.origins[0].report(models=(renamed(room.disk[1].info(), "2"),))
            await room.until(lambda: room.edge.origins.ready("en-de-origin@2"))
            assert await model_of(room, tier="origin") == "en-de-origin@2"

    run(main())


@pytest.mark.parametrize("tier", ["origin", "auto", "refine"])
def test_who_asked_by_the_old_name_asks_again_by_the_new_one(tier: str, tmp_path: Path) -> None:
    """The report is on its way while the question is."""

    async def main() -> None:
        async def late(stream: Stream, submit: Submit) -> None:
            room.origins[0].report(models=(renamed(room.disk[1].info(), "2"),))
            await asyncio.sleep(0.01)
            await stale(stream, submit)

        async with edge_room(tmp_path, origins=1, config={"placement": {"long_tokens": 1}}) as room:
            room.origins[0].script = late
            (text,) = (await room.translate(CAT, tier=tier)).translations
            assert (text.model, text.degraded, text.text) == ("en-de-origin@2", False, room.reversed_ids(CAT))
            assert [submit.model for submit in room.origins[0].submits] == ["en-de-origin@1", "en-de-origin@2"]
            assert counters(room)["asked_again"] == 1

    run(main())


def test_an_origin_that_never_says_what_it_has_by_now_counts_as_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, origins=1, script=stale, config={"placement": {"long_tokens": 1}}) as room:
            with pytest.raises(Unavailable) as caught:
                await room.translate(CAT, tier="origin")
            assert caught.value.code == "origin_unavailable"
            (text,) = (await room.translate(CAT)).translations
            assert (text.tier, text.degraded_reason) == ("edge", "origin_unavailable")
            assert {submit.model for submit in room.origins[0].submits} == {"en-de-origin@1"}
            assert len(room.origins[0].submits) == 2, "once a request"

    run(main())


def test_a_vocabulary_that_came_to_the_disk_is_found_when_an_origin_speaks_of_it(tmp_path: Path) -> None:
    """The origin was started with a new version: until the disk has been looked at, requests for it wait."""

    async def main() -> None:
        async with edge_room(tmp_path, origins=1, run_s=0.05) as room:
            newer = entry(tmp_path, "origin", version="2", vocab="w.spm")
            room.disk[:] = [room.disk[0], newer]
            room.origins[0].report(models=(newer.info(),))
            await room.until(lambda: room.edge._ready_server()._models._looking is not None)
            assert await model_of(room, tier="origin") == "en-de-origin@2"
            assert counters(room)["disk_looks{why=unreadable}"] == 1
            assert await model_of(room, tier="edge") == "en-de-edge@1", "models of ours wait for a reload"

    run(main())


def test_the_disk_is_looked_at_once_for_each_model_and_not_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, origins=1) as room:
            unknown = entry(tmp_path, "origin", vocab="w.spm").info()
            for _ in range(3):
                for version in ("7", "8"):
                    room.origins[0].report(models=(renamed(unknown, version),), queued=1)
                    await asyncio.sleep(0.1)
            assert counters(room)["disk_looks{why=unreadable}"] == 2
            with pytest.raises(InvalidRequest) as caught:
                await room.translate(CAT, tier="origin")
            assert caught.value.code == "tier_unavailable"
            (text,) = (await room.translate(CAT, tier="refine")).translations
            assert text.degraded_reason == "tier_unavailable"
            models = room.edge._ready_server()._models
            for number in range(LOOKS_MAX + 50):
                models._wonder(f"m@{number}")
            await room.until(lambda: models._looking is None)
            assert len(models._unreadable) == LOOKS_MAX
            assert counters(room)["disk_looks{why=unreadable}"] == 3, "many at once are one look"

    run(main())


def test_a_vocabulary_is_kept_while_an_origin_has_a_model_of_it(tmp_path: Path) -> None:
    """The new version lies on the disk, in the old one's place; the origin still serves the old one."""

    async def main() -> None:
        async with edge_room(tmp_path, origins=1) as room:
            newer = entry(tmp_path, "origin", version="2", vocab="w.spm")
            room.disk[:] = [room.disk[0], newer]
            await room.edge.reloader.reload()
            assert await model_of(room, tier="origin") == "en-de-origin@1"
            room.origins[0].report(models=(newer.info(),))
            await room.until(lambda: room.edge.origins.ready("en-de-origin@2"))
            assert await model_of(room, tier="origin") == "en-de-origin@2"
            assert "disk_looks{why=unreadable}" not in counters(room)

    run(main())


def test_origins_are_told_what_can_be_read_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with edge_room(tmp_path, origins=1) as room:

            def said() -> list[str]:
                ((hello, load),) = room.origins[0].server.peers()
                return [model.name for model in (load.models if load is not None else hello.models)]

            assert said() == ["en-de-origin@1"]
            room.disk.append(entry(tmp_path, "origin", version="2", vocab="w.spm"))
            await room.edge.reloader.reload()
            await room.until(lambda: said() == ["en-de-origin@1", "en-de-origin@2"])

    run(main())


def test_a_model_mismatch_makes_the_edge_look_once_and_then_answer_degraded(tmp_path: Path) -> None:
    async def mismatch(_: Stream, submit: Submit) -> None:
        raise InvalidRequest(submit.model, code="model_mismatch")

    async def main() -> None:
        async with edge_room(tmp_path, origins=1, script=mismatch, config={"placement": {"long_tokens": 1}}) as room:
            for _ in range(3):
                (text,) = (await room.translate(CAT)).translations
                assert (text.tier, text.degraded_reason) == ("edge", "origin_unavailable")
            assert counters(room)["disk_looks{why=unreadable}"] == 1
            with pytest.raises(NearsayError) as caught:
                await room.translate(CAT, tier="origin")
            assert caught.value.code == "origin_unavailable"

    run(main())
