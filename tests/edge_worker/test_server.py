"""The edge as a proxy meets it: answers, updates, errors, cancellation, slow readers, over links in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import LinkLimits, Stream
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import DeadlineExceeded, InvalidRequest, NearsayError, Overloaded, Unavailable
from nearsay.wire.messages import Decoding, Stability, Submit, Tokens, Translated, Update, pack_ids, unpack_ids
from tests.edge_worker.room import RUN_S, STEP_S, Room, edge_room, entry, finished, now, reverse, silence
from tests.kit.fake_engine import FakeEngine

CAT = "the cat sat on the mat"


def with_room(folder: Path, test: Any, **options: Any) -> None:
    """Run `test(room)` in a room on virtual time."""

    async def main() -> None:
        async with edge_room(folder, **options) as room:
            await test(room)

    run(main())


def kinds(room: Room) -> list[tuple[int, int, str, str]]:
    return [(u.segment, u.revision, u.kind, u.text) for u in room.updates]


def letters(text: str) -> list[str]:
    """What must survive when parts are reversed: every character but the spaces."""
    return sorted(text.replace(" ", ""))


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_a_sentence_is_translated_here(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate(CAT)
        (text,) = answer.translations
        assert (text.text, text.source, text.tier, text.model) == (
            "mat the on sat cat the",
            "en",
            "edge",
            "en-de-edge@1",
        )
        assert not text.degraded and text.segments == ()

    with_room(tmp_path, test)


def test_ids_of_an_id_engine_are_decoded(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        assert await room.text(CAT) == room.reversed_ids(CAT)

    with_room(tmp_path, test, engine=lambda e: FakeEngine(ids_out=True))


def test_several_texts_and_their_segments(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate("The cat sat.  Good morning!\n", "12:30", "", segments=True)
        first, second, third = answer.translations
        assert first.text == "sat. cat The  morning! Good\n"
        assert [(s.text, s.start, s.end, s.tier) for s in first.segments] == [
            ("sat. cat The", 0, 12, "edge"),
            ("morning! Good", 14, 27, "edge"),
        ]
        assert (second.text, second.model, third.text, third.segments) == ("12:30", "", "", ())
        assert len(room.engines["en-de"].batches) == 1, "both segments in one batch"

    with_room(tmp_path, test)


def test_what_has_no_letters_passes_through_without_a_model(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        text = " 12:30 … 😀\n\n 3 × 4 = 12!  (7)\t"
        assert await room.text(text) == text
        assert room.engines["en-de"].batches == []

    with_room(tmp_path, test)


def test_streamed_segments_come_in_order(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate("The cat sat. 12. Good morning!", stream=True)
        assert kinds(room) == [
            (0, 0, "segment", "sat. cat The"),
            (1, 0, "segment", "12."),
            (2, 0, "segment", "morning! Good"),
        ]
        assert "".join(u.gap + u.text for u in room.updates) == answer.translations[0].text
        assert room.updates[2].start == 17 and room.updates[2].model == "en-de-edge@1"

    with_room(tmp_path, test)


# ---- the origin ------------------------------------------------------------------------------------------------------


def test_tier_origin_streams_growing_text(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate(CAT, tier="origin", stream=True)
        (text,) = answer.translations
        assert (text.text, text.tier, text.model) == (room.reversed_ids(CAT), "origin", "en-de-origin@1")
        *partials, final = room.updates
        assert final.kind == "segment" and final.text == text.text and len(partials) >= 3
        for before, after in zip(partials, room.updates[1:], strict=True):
            assert before.kind == "partial" and before.tier == "origin"
            assert after.text.startswith(before.text) and after.revision == before.revision + 1
        (submit,) = room.origins[0].submits
        assert list(unpack_ids(submit.src_ids)) == [*room.vocab.encode(CAT), room.vocab.eos_id]
        assert submit.stream and not submit.draft_ids and room.engines["en-de"].batches == []

    with_room(tmp_path, test, origins=1)


def test_long_segments_go_to_the_origin_under_auto(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate("the cat", CAT)
        assert [text.tier for text in answer.translations] == ["edge", "origin"]

    with_room(tmp_path, test, origins=1, config={"placement": {"long_tokens": 8}})


def test_a_full_local_queue_sends_work_to_the_origin(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answers = await asyncio.gather(*(room.translate(CAT + " the" * more) for more in range(8)))
        tiers = sorted(answer.translations[0].tier for answer in answers)
        assert tiers.count("origin") >= 4 and "edge" in tiers

    with_room(tmp_path, test, origins=1, config={"batch": {"rows_waiting_max": 2, "rows_max": 1}})


def test_a_pair_that_only_an_origin_has(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        for tier in ("auto", "refine", "origin"):
            answer = await room.translate(CAT, tier=tier)
            assert (answer.translations[0].tier, answer.translations[0].degraded) == ("origin", False)
        await refused(room, "tier_unavailable", InvalidRequest, tier="edge")

    with_room(tmp_path, test, origins=1, entries=[entry(tmp_path, "origin")])


# ---- refine ----------------------------------------------------------------------------------------------------------


def test_refine_shows_a_draft_then_the_origins_word(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        answer = await room.translate(CAT, tier="refine", stream=True)
        assert kinds(room) == [
            (0, 0, "draft", "mat the on sat cat the"),
            (0, 1, "segment", room.reversed_ids(CAT)),
        ]
        assert [u.tier for u in room.updates] == ["edge", "origin"]
        assert answer.translations[0].tier == "origin" and not answer.translations[0].degraded
        assert room.origins[0].submits[0].draft_ids == b"", "it doesn't wait for a draft that nobody wants"

    with_room(tmp_path, test, origins=1)


@pytest.mark.parametrize("ids_out", [True, False])
def test_an_origin_that_wants_drafts_gets_them(tmp_path: Path, ids_out: bool) -> None:
    async def test(room: Room) -> None:
        room.origins[0].report(wants_drafts=("en-de-origin@1",))
        await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        await room.translate(CAT, tier="refine", stream=True)
        draft = room.updates[0].text
        assert room.updates[0].kind == "draft"
        ids = list(unpack_ids(room.origins[0].submits[0].draft_ids))
        expected = list(reversed(room.vocab.encode(CAT))) if ids_out else room.vocab.encode(draft)
        assert ids == expected

    with_room(tmp_path, test, origins=1, engine=lambda e: FakeEngine(ids_out=ids_out))


@pytest.mark.parametrize(
    ("fields", "drafts"),
    [
        ({"tier": "origin", "session": "s"}, True),
        ({"tier": "auto", "session": "s"}, True),  # a session's requests go where its memory is
        ({"tier": "origin"}, False),
        ({"tier": "origin", "session": "s", "priority": "batch"}, False),
    ],
)
def test_a_session_at_the_origin_takes_our_draft_along(tmp_path: Path, fields: dict[str, Any], drafts: bool) -> None:
    async def test(room: Room) -> None:
        await room.translate(CAT, **fields)
        assert room.origins[0].submits[-1].draft_ids == b"", "nobody has asked for drafts yet"
        room.origins[0].report(wants_drafts=("en-de-origin@1",))
        await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        answer = await room.translate(CAT, stream=True, **fields)
        expected = list(reversed(room.vocab.encode(CAT))) if drafts else []
        assert list(unpack_ids(room.origins[0].submits[-1].draft_ids)) == expected
        assert answer.translations[0].tier == "origin" and "draft" not in {update.kind for update in room.updates}
        assert ("edge_run" in answer.stages_ms) == drafts

    with_room(tmp_path, test, origins=1, engine=lambda e: FakeEngine(ids_out=True))


@pytest.mark.parametrize(
    "fields",
    [
        {"decoding": Decoding(beam=9)},
        {"decoding": Decoding(alternatives=1), "tier": "edge"},
        {"stability": Stability(mask=-1)},
        {"stability": Stability(0.3)},
    ],
)
def test_options_are_checked_here_too_for_clients_that_come_directly(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def test(room: Room) -> None:
        await refused(room, "invalid_request", InvalidRequest, **fields)

    with_room(tmp_path, test, origins=1)


def test_what_only_an_origin_can_do_is_done_there(tmp_path: Path) -> None:
    async def script(stream: Stream, submit: Submit) -> None:
        ids = list(reversed(unpack_ids(submit.src_ids)[:-1]))
        best = [ids, ids[1:], ids[2:]]
        await stream.finish(finished(ids, submit, n_best=tuple(map(pack_ids, best))[: submit.n_best], bias=submit.bias))

    two = f"{CAT}.\n\n{CAT}"

    async def test(room: Room) -> None:
        (text,) = (await room.translate(two, decoding=Decoding(4, 0.5, 2))).translations
        assert text.tier == "origin" and len(text.alternatives) == 2
        submit = room.origins[0].submits[-1]
        assert (submit.beam, submit.length_penalty, submit.n_best, submit.bias) == (4, 0.5, 3, 0.0)
        (text,) = (await room.translate(two, session="s", stability=Stability(0.4, 1), stream=True)).translations
        assert sorted(submit.bias for submit in room.origins[0].submits[-2:]) == [0.0, 0.4], "the finished one is plain"
        assert (text.bias, text.masked) == (0.4, 1) and text.alternatives == ()
        shown = {update.segment: update.text for update in room.updates}
        assert shown[0] == room.reversed_ids(f"{CAT}.") and text.text == f"{shown[0]}\n\n{shown[1]}"
        whole = await room.text(two, tier="origin")
        assert whole.startswith(text.text) and len(whole.split()) == len(text.text.split()) + 1

    with_room(tmp_path, test, origins=1, script=script)


def test_a_busy_edge_makes_no_session_wait_for_a_draft(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        room.origins[0].report(wants_drafts=("en-de-origin@1",))
        await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        await room.translate(CAT, tier="origin", session="s")
        assert room.origins[0].submits[-1].draft_ids == b"" and room.engines["en-de"].batches == []

    with_room(tmp_path, test, origins=1, config={"segment": {"draft_ms_max": 0.001}})


def test_a_sessions_draft_stands_labelled_when_its_origin_fails(tmp_path: Path) -> None:
    async def shed(_: Stream, __: Submit) -> None:
        raise Overloaded

    async def test(room: Room) -> None:
        room.origins[0].report(wants_drafts=("en-de-origin@1",))
        await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        room.origins[0].script = shed
        (text,) = (await room.translate(CAT, session="s")).translations
        assert (text.tier, text.degraded_reason, text.text) == ("edge", "overloaded", room.reversed_ids(CAT))
        assert len(room.engines["en-de"].batches) == 1, "the draft is the answer: nothing runs twice"

    with_room(tmp_path, test, origins=1, engine=lambda e: FakeEngine(ids_out=True))


def test_a_draft_of_another_vocabulary_is_encoded_again(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        room.origins[0].report(wants_drafts=("en-de-origin@1",))
        await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        await room.translate(CAT, tier="refine", stream=True)
        far = Vocab.load(tmp_path / "w.spm")
        assert far.hash != room.vocab.hash
        submit = room.origins[0].submits[0]
        assert list(unpack_ids(submit.draft_ids)) == far.encode(room.updates[0].text)
        assert list(unpack_ids(submit.src_ids))[:-1] == far.encode(CAT)

    entries = [entry(tmp_path, "edge"), entry(tmp_path, "origin", vocab="w.spm")]
    with_room(tmp_path, test, origins=1, entries=entries, engine=lambda e: FakeEngine(ids_out=True))


def test_refine_unstreamed_gives_the_final_and_wastes_no_draft(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        assert await room.text(CAT, tier="refine") == room.reversed_ids(CAT)
        assert room.engines["en-de"].batches == [] and room.updates == []

    with_room(tmp_path, test, origins=1)


# ---- degraded --------------------------------------------------------------------------------------------------------


async def refused(room: Room, code: str, kind: type[NearsayError], *texts: str, **fields: Any) -> NearsayError:
    with pytest.raises(kind) as caught:
        await room.translate(*(texts or (CAT,)), **fields)
    assert caught.value.code == code
    return caught.value


@pytest.mark.parametrize("up_at_first", [True, False])
def test_an_origin_that_is_down(tmp_path: Path, up_at_first: bool) -> None:
    async def test(room: Room) -> None:
        await room.origins[0].fail()
        await room.until(lambda: not room.edge.origins.peers[0].ready)
        await refused(room, "origin_unavailable", Unavailable, tier="origin")
        for tier in ("refine", "auto"):
            answer = await room.translate(CAT, tier=tier, segments=True)
            (text,) = answer.translations
            assert (text.tier, text.degraded, text.degraded_reason) == ("edge", True, "origin_unavailable")
            assert text.segments[0].degraded
        assert not (await room.translate("cat")).translations[0].degraded, "short text belongs to the edge anyway"
        report = room.edge._ready_server().load()
        assert report.origin_ready == () and room.edge._ready_server().hello().origin_pairs == ("en-de",)

    with_room(tmp_path, test, origins=1, origins_up=up_at_first, config={"placement": {"long_tokens": 8}})


def test_an_origin_that_dies_mid_request(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async def die(_: Stream, __: Submit) -> None:
            await room.origins[0].fail()

        room.origins[0].script = die
        answer = await room.translate(CAT, tier="refine", stream=True)
        assert kinds(room)[-1] == (0, 1, "segment", "mat the on sat cat the")
        (text,) = answer.translations
        assert (text.tier, text.degraded, text.degraded_reason) == ("edge", True, "link_lost")

    with_room(tmp_path, test, origins=1)


def test_tier_origin_and_an_origin_that_dies_mid_request(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async def die(_: Stream, __: Submit) -> None:
            await room.origins[0].fail()

        room.origins[0].script = die
        await refused(room, "link_lost", Unavailable, tier="origin")

    with_room(tmp_path, test, origins=1)


def test_an_origin_that_sheds_or_stalls_costs_the_label_not_the_answer(tmp_path: Path) -> None:
    async def shed(_: Stream, __: Submit) -> None:
        raise Overloaded

    async def test(room: Room) -> None:
        for script, reason in ((shed, "overloaded"), (silence, "deadline_exceeded")):
            room.origins[0].script = script
            for stream in (False, True):
                answer = await room.translate(CAT, tier="refine", stream=stream, budget_ms=1000)
                assert answer.translations[0].degraded_reason == reason
        await refused(room, "deadline_exceeded", DeadlineExceeded, tier="origin", budget_ms=100)
        await room.until(lambda: room.origins[0].cancelled == 3)

    with_room(tmp_path, test, origins=1)


def test_tiers_of_an_edge_without_origins(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await refused(room, "tier_unavailable", InvalidRequest, tier="origin")
        (text,) = (await room.translate(CAT, tier="refine")).translations
        assert (text.tier, text.degraded_reason) == ("edge", "tier_unavailable")
        assert not (await room.translate(CAT, tier="edge")).translations[0].degraded

    with_room(tmp_path, test)


# ---- too long --------------------------------------------------------------------------------------------------------


def test_a_truncated_translation_is_redone_in_halves(tmp_path: Path) -> None:
    text = "the cat sat on the mat and the dog looked at the cat"

    async def test(room: Room) -> None:
        answer = await room.text(text)
        assert sorted(answer.split()) == sorted(text.split()), "nothing is lost"
        assert len(room.engines["en-de"].batches) >= 2

    with_room(tmp_path, test, engine=lambda e: FakeEngine(truncate=lambda item: len(item.ids) > 12))


def test_finish_reason_length_is_redone_in_halves(tmp_path: Path) -> None:
    text = "the cat sat on the mat and the dog looked at the cat"

    async def short_of_breath(stream: Stream, submit: Submit) -> None:
        ids = unpack_ids(submit.src_ids)[:-1]
        if len(ids) > 12:
            return await stream.finish(finished(ids[:5], submit, finish_reason="length"))
        return await reverse(stream, submit)

    async def test(room: Room) -> None:
        answer = await room.translate(text, tier="origin", stream=True)
        assert letters(answer.translations[0].text) == letters(text)
        assert answer.translations[0].tier == "origin" and len(room.origins[0].submits) >= 3

    with_room(tmp_path, test, origins=1, script=short_of_breath)


def test_a_loop_that_never_ends_gives_back_its_source_labelled(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        (text,) = (await room.translate(CAT)).translations
        assert text.text == CAT and text.degraded_reason == "untranslatable"

    with_room(tmp_path, test, engine=lambda e: FakeEngine(truncate=lambda item: True))


def test_segments_over_the_bound_are_split_before_they_run(tmp_path: Path) -> None:
    text = " ".join(["the cat sat on the mat"] * 12)

    async def test(room: Room) -> None:
        answer = await room.translate(text, tier="refine", stream=True)
        assert letters(answer.translations[0].text) == letters(text)
        assert [u.kind for u in room.updates] == ["draft", "segment"], "one draft of the whole segment"
        for batch in room.engines["en-de"].batches:
            assert all(len(item.ids) <= 16 for item in batch)
        assert all(len(submit.src_ids) <= 4 * 17 for submit in room.origins[0].submits)

    with_room(tmp_path, test, origins=1, config={"segment": {"source_tokens_max": 16}})


@pytest.mark.parametrize("tier", ["edge", "origin"])
def test_one_word_of_100_kilobytes(tmp_path: Path, tier: str) -> None:
    async def test(room: Room) -> None:
        text = "cat" * 33_000
        answer = await room.text(text, tier=tier, budget_ms=600_000)
        assert letters(answer) == letters(text)

    with_room(tmp_path, test, origins=1)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await refused(room, "unsupported_pair", InvalidRequest, target="xx")
        await refused(room, "detection_unavailable", InvalidRequest, source="auto")
        await refused(room, "text_too_long", InvalidRequest, *(["a"] * 5))
        await refused(room, "text_too_long", InvalidRequest, "a" * 101)
        await refused(room, "deadline_exceeded", DeadlineExceeded, budget_ms=0)
        stream = await room.peer.open(Translate0)
        with pytest.raises(InvalidRequest):
            await stream.receive()
        with pytest.raises(InvalidRequest, match="empty_text"):
            await (await room.open()).receive()
        assert await room.text("nul \0 cat") is not None

    with_room(tmp_path, test, config={"request": {"texts_max": 4, "characters_max": 100}})


Translate0 = Submit("r", "m@1", "s", "t", b"")


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "fields", "seconds"),
    [
        ((CAT,), {}, RUN_S),
        (("The cat sat. The dog looked.", "12"), {}, RUN_S),
        (("the cat",), {"tier": "origin"}, None),
        (("the cat",), {"tier": "refine", "stream": True}, None),
        (("12",), {}, 0.0),
    ],
)
def test_stages_sum_to_the_wall_time(
    tmp_path: Path, texts: tuple[str, ...], fields: Any, seconds: float | None
) -> None:
    async def test(room: Room) -> None:
        if seconds is None and fields["tier"] == "refine":
            room.origins[0].report(wants_drafts=("en-de-origin@1",))
            await room.until(lambda: room.edge.origins.wants_drafts("en-de-origin@1"))
        before = now()
        answer = await room.translate(*texts, **fields)
        wall_ms = (now() - before) * 1000
        expected = seconds if seconds is not None else len(room.vocab.encode(texts[0])) * STEP_S
        expected += RUN_S if fields.get("tier") == "refine" else 0.0
        assert answer.accounted_ms == pytest.approx(expected * 1000, abs=1e-3)
        assert sum(answer.stages_ms.values()) == pytest.approx(answer.accounted_ms, abs=1e-6)
        assert answer.accounted_ms <= wall_ms + 1e-6
        if fields.get("tier"):
            assert answer.stages_ms["decode"] == pytest.approx(len(room.vocab.encode(texts[0])) * STEP_S * 1000)
            assert answer.stages_ms["origin_link"] == pytest.approx(0, abs=1e-3)

    with_room(tmp_path, test, origins=1)


def test_waiting_for_the_engine_is_edge_queue(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        first, second = await asyncio.gather(room.translate(CAT), room.translate("the dog sat on the mat"))
        assert first.stages_ms["edge_queue"] == pytest.approx(0, abs=1e-3)
        assert second.stages_ms["edge_queue"] == pytest.approx(RUN_S * 1000, abs=1e-3)
        assert second.stages_ms["edge_run"] == pytest.approx(RUN_S * 1000, abs=1e-3)
        snapshot = room.edge.metrics.snapshot()
        assert {"e2e", "edge_run"} <= {row["stage"] for row in snapshot["stages"]}

    with_room(tmp_path, test, config={"batch": {"rows_max": 1}})


def test_work_that_is_too_late_is_not_started(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        blocking = asyncio.ensure_future(room.translate(CAT))  # noqa: TID251 - a test's own task
        await room.until(lambda: room.engines["en-de"].batches != [])
        await refused(room, "deadline_exceeded", DeadlineExceeded, budget_ms=5)
        await blocking
        assert len(room.engines["en-de"].batches) == 1

    with_room(tmp_path, test)


# ---- leaving and reading slowly --------------------------------------------------------------------------------------


def test_a_client_that_leaves_takes_its_queue_entries_along(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        stays = asyncio.ensure_future(room.translate("the dog"))  # noqa: TID251
        await room.until(lambda: room.engines["en-de"].batches != [])
        leaves = [await room.open(CAT), await room.open("The cat. The mat. A bridge.")]
        await asyncio.sleep(RUN_S / 2)
        assert room.edge._ready_server().load().queued == 4
        for stream in leaves:
            stream.cancel()
        await asyncio.sleep(RUN_S / 4)
        assert room.edge._ready_server().load().queued == 0
        await stays
        await asyncio.sleep(5 * RUN_S)
        assert len(room.engines["en-de"].batches) == 1

    with_room(tmp_path, test)


@pytest.mark.parametrize("tier", ["origin", "refine"])
def test_a_client_that_leaves_cancels_at_the_origin(tmp_path: Path, tier: str) -> None:
    async def test(room: Room) -> None:
        stream = await room.open("The cat. The mat.", tier=tier, stream=True)
        await room.until(lambda: len(room.origins[0].submits) == 2)
        stream.cancel()
        await asyncio.sleep(0)
        await room.until(lambda: room.origins[0].cancelled == 2, 0.01)
        assert all(peer.in_flight == 0 for peer in room.edge.origins.peers)

    with_room(tmp_path, test, origins=1, script=silence)


async def chatty(stream: Stream, submit: Submit) -> None:
    """Partial states of 800 kB in all: more than a link holds for a reader who doesn't read."""
    ids = list(unpack_ids(submit.src_ids))[:-1] * 20
    for _ in range(60):
        await stream.send(Tokens(pack_ids(ids)))
        await asyncio.sleep(STEP_S)
    await stream.finish(finished(ids * 60, submit))


def test_a_reader_that_stops_holds_neither_slots_nor_others(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        stream = await room.open(CAT, tier="origin", stream=True, budget_ms=60_000)
        await room.until(lambda: len(room.origins[0].submits) == 1 and room.edge.origins.peers[0].in_flight == 0)
        assert room.edge.links.in_flight == 1, "the answer waits for its reader"
        assert await room.text("the dog") == "dog the"
        messages = [message async for message in stream]
        *updates, final = messages
        assert isinstance(final, Translated) and final.translations[0].text == updates[-1].text  # type: ignore[union-attr]
        revisions = [u.revision for u in updates if isinstance(u, Update)]
        assert revisions == sorted(set(revisions)) and revisions[-1] > len(revisions), "old states were dropped"

    with_room(tmp_path, test, origins=1, script=chatty)


def test_a_reader_that_never_comes_back_is_given_up_at_its_deadline(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await room.open(CAT, tier="origin", stream=True, budget_ms=2_000)
        await room.until(lambda: room.edge.links.in_flight == 1)
        await room.until(lambda: room.edge.links.in_flight == 0, 3.0)

    with_room(tmp_path, test, origins=1, script=chatty)


# ---- many ------------------------------------------------------------------------------------------------------------


def test_requests_share_batches(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await asyncio.gather(*(room.translate(f"{CAT} {n}") for n in range(33)))
        sizes = [len(batch) for batch in room.engines["en-de"].batches]
        assert sum(sizes) == 33 and max(sizes) > 8

    with_room(tmp_path, test)


def test_a_full_queue_sheds(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        work = (room.translate(CAT + " the" * more) for more in range(12))
        results = await asyncio.gather(*work, return_exceptions=True)
        shed = [r for r in results if isinstance(r, Overloaded)]
        assert shed and all(error.retry_after_ms for error in shed)
        assert all(isinstance(r, Translated | Overloaded) for r in results)

    with_room(tmp_path, test, config={"batch": {"rows_waiting_max": 4, "rows_max": 1}})


def test_an_engine_that_fails_breaks_its_batch_only(tmp_path: Path) -> None:
    def spend(batch: Any) -> None:
        if any(item.text.startswith("boom") for item in batch):
            raise RuntimeError("boom")

    async def test(room: Room) -> None:
        await refused(room, "internal_error", NearsayError, "boom")
        assert await room.text("the dog") == "dog the"

    with_room(tmp_path, test, engine=lambda e: FakeEngine(spend=spend))


def test_a_long_text_doesnt_fill_the_queue(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        text = "The cat sat. " * 300
        answer = await room.text(text, budget_ms=100_000)
        assert answer == "sat. cat The " * 300

    with_room(tmp_path, test, config={"batch": {"rows_waiting_max": 20}, "request": {"segments_in_flight_max": 16}})


def test_parts_of_one_long_segment_dont_fill_the_queue_either(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        text = "cat " * 300
        assert sorted((await room.text(text, budget_ms=100_000)).split()) == ["cat"] * 300

    limits = {"segment": {"source_tokens_max": 8}, "request": {"segments_in_flight_max": 4}}
    with_room(tmp_path, test, config={"batch": {"rows_waiting_max": 5}, **limits})


def test_long_texts_are_bounded_together_and_short_ones_always_have_room(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        texts = ["The cat sat. " * 5] * 3 + ["the dog"] * 3
        results = await asyncio.gather(*(room.translate(text) for text in texts), return_exceptions=True)
        assert [type(result) for result in results] == [Translated, Translated, Overloaded] + [Translated] * 3
        assert isinstance(results[2], Overloaded) and results[2].retry_after_ms
        assert isinstance(await room.translate(texts[0]), Translated), "the room is free again"

    with_room(tmp_path, test, config={"request": {"inline_characters_max": 40, "long_characters_max": 150}})


def test_load_reports_tell_the_client(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await room.until(lambda: room.peer.load is not None and room.peer.load.origin_ready == ("en-de",))
        assert room.peer.hello is not None and room.peer.load is not None
        assert [m.name for m in room.peer.load.models] == ["en-de-edge@1", "en-de-origin@1"]
        assert [m.engine for m in room.peer.hello.models] == ["fake none cpu", "nearsay"]
        await room.origins[0].fail()
        await room.until(lambda: room.peer.load is not None and room.peer.load.origin_ready == (), 0.01)

    with_room(tmp_path, test, origins=1, limits=LinkLimits())


def test_an_origin_whose_vocabularies_are_not_here_serves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(room: Room) -> None:
        await refused(room, "tier_unavailable", InvalidRequest, tier="origin")
        room.origins[0].report(queued=1)
        await asyncio.sleep(1)
        assert await room.text(CAT) == "mat the on sat cat the"

    here = [entry(tmp_path, "edge"), entry(tmp_path, "origin")]
    there = [entry(tmp_path, "origin", vocab="w.spm")]
    with_room(tmp_path, test, origins=1, entries=here, origin_models=there)
    assert [record.message for record in caplog.records if "vocabularies" in record.message] == [
        "an origin has en-de-origin@1, but its vocabularies are not known here"
    ]


def test_draining_is_told_at_once(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await room.until(lambda: room.peer.load is not None)
        room.edge.lifecycle.move("draining")
        await room.until(lambda: room.peer.load is not None and room.peer.load.state == "draining", 0.01)

    with_room(tmp_path, test)
