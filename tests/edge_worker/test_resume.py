"""A stream that another edge began: taken up, or begun anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.join import Join, Piece
from edge_worker.core.resume import resume
from edge_worker.core.segmenter import segment
from nearsay.wire.messages import DoneSegment, Translate, Update
from tests.edge_worker.room import Room
from tests.edge_worker.test_server import with_room

TEXT = "The cat sat. The dog looked!\n\n- The children are playing. Good morning?\n"
MODEL = "en-de-edge@1"


def request(*texts: str, done: tuple[DoneSegment, ...] = (), models: tuple[str, ...] = (MODEL,)) -> Translate:
    return Translate("r1", texts, "en", "de", stream=True, done=done, models=models)


def joins_of(*texts: str) -> list[Join]:
    return [Join(item, segment(text, "en")) for item, text in enumerate(texts)]


def done_of(join: Join, *indices: int, model: str = MODEL) -> tuple[DoneSegment, ...]:
    spans = [join.segments[index] for index in indices]
    return tuple(DoneSegment(join.item, s.start, s.end, s.text.upper(), "edge", model) for s in spans)


def test_what_is_done_is_taken_over() -> None:
    one, two = joins_of(TEXT, TEXT)
    assert resume([one, two], request(TEXT, TEXT, done=(*done_of(one, 0, 2), *done_of(two, 1))), {MODEL})
    assert (one.left(), two.left()) == ([1, 3], [0, 2, 3])
    [update] = one.add(1, Piece("X"))[:1]
    assert (update.segment, update.revision) == (1, 0)  # the reader has the first


def test_nothing_is_taken_over_from_another_cut_or_another_model() -> None:
    [join] = joins_of(TEXT)
    whole = DoneSegment(0, 0, len(TEXT), "X", "edge", MODEL)
    for unfit in (
        request(TEXT, done=(*done_of(join, 0), whole)),
        request(TEXT, done=(*done_of(join, 0), *done_of(join, 0))),
        request(TEXT, done=(DoneSegment(7, 0, 12, "X", "edge", MODEL),)),
        request(TEXT, done=done_of(join, 0), models=("en-de-edge@2",)),
        request(TEXT, models=(MODEL, "another@1")),  # words of it were shown, though nothing was final
    ):
        assert not resume([join], unfit, {MODEL})
        assert join.left() == [0, 1, 2, 3]


@given(st.text(st.sampled_from("aB. \n-"), max_size=60), st.data())
def test_resumed_anywhere_the_joined_text_is_the_same(text: str, data: st.DataObject) -> None:
    [unbroken], [resumed] = joins_of(text), joins_of(text)
    count = len(unbroken.segments)
    done = data.draw(st.sets(st.integers(0, count - 1))) if count else set()
    assert resume([resumed], request(text, done=done_of(unbroken, *done)), {MODEL})
    assert resumed.left() == [index for index in range(count) if index not in done]
    shown: dict[int, str] = {index: unbroken.segments[index].text.upper() for index in done}
    for index in range(count):
        unbroken.add(index, Piece(unbroken.segments[index].text.upper()))
    for index in data.draw(st.permutations(resumed.left())):
        for update in resumed.add(index, Piece(resumed.segments[index].text.upper())):
            assert update.segment not in shown and update.revision == 0
            shown[update.segment] = update.text
    assert resumed.done and resumed.text() == unbroken.text()
    assert [p.text for p in resumed.pieces()] == [shown[i] for i in range(count)]


def spans(room: Room) -> list[tuple[str, int]]:
    return [(u.kind, u.segment) for u in room.updates]


def test_an_edge_does_what_is_left_and_answers_the_whole(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        whole = await room.translate(TEXT, stream=True, segments=True)
        before: list[Update] = room.updates
        done = tuple(
            DoneSegment(0, u.start, u.end, u.text, u.tier, u.model, "why" if u.segment == 2 else "")
            for u in before[::2]
        )
        room.engines["en-de"].batches.clear()
        answer = await room.translate(TEXT, stream=True, segments=True, done=done, models=(MODEL,))
        assert spans(room) == [("segment", 1), ("segment", 3)]
        assert sum(map(len, room.engines["en-de"].batches)) == 2
        [one], [two] = whole.translations, answer.translations
        assert (two.text, two.model) == (one.text, one.model)
        assert (two.degraded, two.degraded_reason) == (True, "why")  # as the client was told before
        assert [s.text for s in two.segments] == [s.text for s in one.segments]

    with_room(tmp_path, test)


def test_all_done_is_answered_without_any_work(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        whole = await room.translate(TEXT, stream=True)
        done = tuple(DoneSegment(0, u.start, u.end, u.text, u.tier, u.model) for u in room.updates)
        room.engines["en-de"].batches.clear()
        answer = await room.translate(TEXT, stream=True, done=done, models=(MODEL,))
        assert answer.translations == whole.translations
        assert room.updates == [] and room.engines["en-de"].batches == []

    with_room(tmp_path, test)


def test_an_edge_that_cannot_go_on_says_so_and_does_everything(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        whole = await room.translate(TEXT, stream=True)
        first = room.updates[0]
        unfit: list[dict[str, Any]] = [
            {"done": (DoneSegment(0, 0, 12, first.text, "edge", "en-de-edge@2"),), "models": ("en-de-edge@2",)},
            {"done": (DoneSegment(0, 0, 5, "x", "edge", MODEL),), "models": (MODEL,)},
        ]
        for fields in unfit:
            answer = await room.translate(TEXT, stream=True, **fields)
            assert answer.translations == whole.translations
            assert spans(room) == [("restart", 0), *(("segment", index) for index in range(4))]

    with_room(tmp_path, test)
