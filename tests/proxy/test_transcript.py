from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.messages import DoneSegment, Update, UpdateKind
from proxy.core.transcript import Transcript


def update(segment: int, revision: int, kind: UpdateKind, text: str, model: str = "m@1") -> Update:
    return Update(0, segment, revision, kind, text, " ", 10 * segment, 10 * segment + 9, "edge", model)


def test_an_unbroken_stream_passes_as_it_is() -> None:
    shown = Transcript()
    for each in (update(0, 0, "draft", "a"), update(0, 1, "segment", "b"), update(1, 0, "partial", "c")):
        assert shown.take(each) is each
    assert shown.models == {"m@1"}
    assert shown.done == (DoneSegment(0, 0, 9, "b", "edge", "m@1"),)


def test_what_a_further_attempt_repeats_is_not_shown_again() -> None:
    shown = Transcript()
    for each in (update(0, 0, "segment", "a"), update(1, 0, "partial", "bc"), update(2, 0, "draft", "d")):
        shown.take(each)
    for again in (
        update(0, 0, "segment", "a"),  # an edge that knows no better
        update(1, 0, "partial", "b"),
        update(1, 1, "partial", "bc"),
        update(2, 0, "draft", "d"),
        update(2, 1, "partial", "x"),  # a draft stands until the last word
    ):
        assert shown.take(again) is None
    onwards = [shown.take(each) for each in (update(1, 2, "partial", "bcd"), update(2, 2, "segment", "e"))]
    assert [(u.segment, u.revision, u.text) for u in onwards if u] == [(1, 1, "bcd"), (2, 1, "e")]


def test_after_a_restart_nothing_counts_as_shown_but_revisions_go_on() -> None:
    shown = Transcript()
    shown.take(update(0, 0, "segment", "a"))
    restart = Update(0, 0, 0, "restart", "")
    assert shown.take(restart) is restart
    assert (shown.models, shown.done) == (frozenset(), ())
    again = shown.take(update(0, 0, "segment", "b", "m@2"))
    assert again is not None and again.revision == 1
    assert shown.models == {"m@2"}


def test_why_a_segment_is_degraded_is_remembered() -> None:
    shown = Transcript()
    shown.take(msgspec.structs.replace(update(0, 0, "segment", "a"), degraded="origin_unavailable"))
    assert shown.done[0].degraded == "origin_unavailable"


def stream(seed: int, segments: int) -> list[Update]:
    """What an edge sends for texts whose final state depends on nothing but their number."""
    random, sent = Random(seed), []
    for segment in range(segments):
        words = [f"w{segment}.{n}" for n in range(random.randint(1, 4))]
        states: list[tuple[UpdateKind, str]] = []
        if random.random() < 0.5:
            states += [("partial", " ".join(words[:n])) for n in range(1, len(words)) if random.random() < 0.7]
        elif random.random() < 0.5:
            states.append(("draft", f"draft {segment}"))
        states.append(("segment", " ".join(words)))
        sent += [update(segment, revision, kind, text) for revision, (kind, text) in enumerate(states)]
    return sent


@given(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 20), st.booleans()), max_size=6))
def test_cut_anywhere_the_client_has_the_whole_text_once(segments: int, cuts: list[tuple[int, int, bool]]) -> None:
    shown = Transcript()
    client: dict[int, Update] = {}
    revisions: dict[int, int] = {}
    for seed, length, goes_on in [*cuts, (0, 10**6, True)]:
        if not goes_on and client:
            assert shown.take(Update(0, 0, 0, "restart", "")) is not None
            client.clear()
        done = {d.start // 10 for d in shown.done}
        assert done == {segment for segment, u in client.items() if u.kind == "segment"}
        for each in [u for u in stream(seed, segments) if u.segment not in done][:length]:
            taken = shown.take(each)
            if taken is None:
                continue
            assert taken.revision == revisions.get(taken.segment, -1) + 1
            revisions[taken.segment] = taken.revision
            before = client.get(taken.segment)
            assert before is None or before.kind != "segment"
            client[taken.segment] = taken
    # Each attempt draws its own words' number, so only who finished a segment says how long it is.
    assert sorted(client) == list(range(segments))
    assert all(u.kind == "segment" for u in client.values())
