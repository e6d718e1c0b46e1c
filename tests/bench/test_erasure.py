"""Erasure and lag against their definitions; the drawing is well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.curve import svg
from bench.erasure import erasure, held_back, lag

STATES = st.lists(st.lists(st.sampled_from("abc"), max_size=5), min_size=1, max_size=6)


def test_words_taken_back() -> None:
    assert erasure([["a"], ["a", "b"], ["a", "c", "d"], ["a", "c"]]) == 2
    assert erasure([["a", "b"], ["b"]]) == 2
    assert erasure([["a"]]) == erasure([[], ["a"]]) == 0


def test_lag_of_words_that_come_in_step_late_and_early() -> None:
    assert lag([["a"], ["a", "b"]]) == 0.0
    assert lag([["x"], ["a", "b"]]) == 0.5  # the first word, one event late
    assert lag([["a", "b"], ["a", "b"]]) == -0.5
    assert lag([["a", "b"], ["c"], ["a", "b"]]) == pytest.approx(3 - (1.5 + 3) / 2)
    assert lag([["a"], []]) == 0.0


@given(STATES)
def test_nothing_is_taken_back_of_what_only_grows(states: list[list[str]]) -> None:
    final = states[-1]
    growing = [final[: len(final) * event // len(states)] for event in range(1, len(states) + 1)]
    assert erasure(growing) == 0
    assert 0 <= erasure(states) <= sum(map(len, states[:-1]))
    assert lag(states) <= len(states)


@given(STATES, st.integers(0, 6))
def test_holding_back_never_takes_back_more(states: list[list[str]], mask: int) -> None:
    assert erasure([held_back(words, mask) for words in states]) <= erasure(states)


def test_the_drawing_has_a_point_and_a_label_for_each() -> None:
    curves = {"one <1>": [(0.0, 1.0, "a"), (1.0, 2.0, "b")], "two": [(0.5, 0.5, "c")]}
    root = ET.fromstring(svg([("t", "x", "y", curves), ("t2", "x", "y", {"flat": [(1.0, 1.0, "d")]})]))
    assert len(root.findall("{*}circle")) == 4
    assert {"a", "b", "c", "d", "one <1>", "t2"} <= {text.text for text in root.findall("{*}text")}
