"""BeamState as a conversation: candidates in, extensions out. No tensor in sight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.nmt.beam import BeamState, Extension, place_rows

EOS = 0


def beam(width: int = 2, **options: float) -> BeamState:
    return BeamState(width, **{"eos_id": EOS, "target_tokens_max": 10, **options})  # type: ignore[arg-type]


def test_two_rows_to_the_end() -> None:
    state = beam()
    assert state.advance([[-0.1, -1.0, -2.0, -3.0]], [[5, EOS, 6, 7]]) == [Extension(0, 5), Extension(0, 6)]
    # `</s>` was among the best two: it ended, with its own length of one.
    assert [(h.ids, h.score) for h in state.best(2)] == [((), -1.0)]
    # Now the best that lives stands at -2.3 / 2, below the worst that ended: nothing better can come.
    assert state.advance([[-0.2, -5.0], [-0.3, -6.0]], [[EOS, 8], [9, EOS]]) == []
    assert [(h.ids, h.score) for h in state.best(2)] == [((5,), pytest.approx(-0.15)), ((), -1.0)]
    assert state.done


def test_an_end_outside_the_best_is_only_a_reserve() -> None:
    state = beam()
    state.advance([[-0.1, -0.2, -0.3, -0.4]], [[5, 6, EOS, 7]])
    assert state.best(2) == [] and not state.done


def test_limit_cuts_off_and_says_so() -> None:
    state = beam(target_tokens_max=2)
    state.advance([[-0.1, -0.2, -0.3, -0.4]], [[5, 6, 7, 8]])
    assert state.advance([[-0.1, -0.4], [-0.5, -0.1]], [[9, 10], [11, EOS]]) == []
    assert [(h.ids, h.truncated) for h in state.best(2)] == [((5, 9), True), ((6,), False)]


def test_forced_end_counts_as_cut_off() -> None:
    state = beam(width=1, target_tokens_max=2, forced_eos=True)
    state.advance([[-0.5, -1.0]], [[5, 6]])
    assert state.advance([[-0.1, -0.2]], [[7, 8]]) == []
    assert [(h.ids, h.score, h.truncated) for h in state.best()] == [((5,), -0.25, True)]


def test_length_penalty_and_prefix_count() -> None:
    for penalty, prefix, divisor in ((0.0, 0, 1.0), (1.0, 0, 2.0), (1.0, 1, 3.0), (2.0, 0, 4.0)):
        state = beam(width=1, length_penalty=penalty, prefix_tokens=prefix)
        state.advance([[-0.5, -1.0]], [[5, 6]])
        state.advance([[-0.5, -9.0]], [[EOS, 6]])
        assert state.best()[0].score == pytest.approx(-1.0 / divisor)


def test_impossible_candidates_are_never_taken() -> None:
    state = beam(width=3)
    assert state.advance([[-0.1, float("-inf"), float("-inf")]], [[5, 6, EOS]]) == [Extension(0, 5)]
    assert state.best() == []


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 8), st.floats(0.0, 2.0))
def test_search_always_ends_with_sorted_hypotheses(data: st.DataObject, width: int, penalty: float) -> None:
    state = beam(width=width, target_tokens_max=6, length_penalty=penalty)
    rows, steps = 1, 0
    while not state.done:
        tokens = [data.draw(st.permutations(range(2 * width))) for _ in range(rows)]
        scores = [
            sorted(data.draw(st.lists(st.floats(-9, 0), min_size=2 * width, max_size=2 * width)), reverse=True)
            for _ in range(rows)
        ]
        extensions = state.advance(scores, tokens)
        assert len(extensions) <= width and all(0 <= e.parent < rows and e.token != EOS for e in extensions)
        assert bool(extensions) != state.done
        rows, steps = len(extensions), steps + 1
    found = state.best(width)
    assert steps <= 6 and found and len(found) <= width
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    assert all(EOS not in h.ids and len(h.ids) <= 6 for h in found)


@given(st.data(), st.integers(1, 8))
def test_place_rows_moves_as_little_as_it_can(data: st.DataObject, width: int) -> None:
    owned = data.draw(st.permutations(range(width)))
    present = owned[: data.draw(st.integers(1, width))]
    parents = data.draw(st.lists(st.integers(0, len(present) - 1), max_size=width))
    slots, copies = place_rows(present, owned, parents)
    assert len(set(slots)) == len(slots) == len(parents) and set(slots) <= set(owned)
    held = dict.fromkeys(owned, -1) | {slot: row for row, slot in enumerate(present)}
    after = held | {to: held[origin] for origin, to in copies}
    assert [after[slot] for slot in slots] == parents
    assert len(copies) == len(parents) - len(set(parents))
