from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.distill.symbols import SYMBOL, protect, restore, shared_items, survived

WORDS = st.sampled_from(
    [
        "Anna",
        "Oslo",
        "12",
        "3.5",
        "https://a.example/x?y=1",
        "<b>",
        "</b>",
        "{name}",
        "%s",
        "--all",
        "cat",
        "und",
        "(",
        ",",
    ]
)
LINES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)


@pytest.mark.parametrize(
    ("source", "target", "items"),
    [
        ("Anna paid 12.50 euros.", "Anna zahlte 12.50 Euro.", {"Anna", "12.50"}),
        ("See https://a.example/x?y=1, please.", "Siehe bitte https://a.example/x?y=1.", {"https://a.example/x?y=1"}),
        ("Press <b>OK</b> now.", "Drücken Sie jetzt <b>OK</b>.", {"<b>", "</b>", "OK"}),
        ("Hello {name}, %d files", "Hallo {name}, %d Dateien", {"{name}", "%d"}),
        ("Run tar --extract", "Führe tar --extract aus", {"--extract"}),
        ("Anna met Anna.", "Anna traf sich.", set()),
        ("In the house", "In dem Haus", set()),
        ("I live in New York.", "Ich lebe in New York.", {"New York"}),
        ("Oslos", "Oslo", set()),
    ],
)
def test_items_are_shared_only_as_whole_words_and_equally_often(source: str, target: str, items: set[str]) -> None:
    assert set(shared_items(source, target)) == items


@given(LINES, LINES, st.integers(0, 99))
def test_both_sides_get_the_same_symbols_and_can_be_restored(source: str, target: str, seed: int) -> None:
    done = protect(source, target, random.Random(seed))
    if done is None:
        return
    new_source, new_target, table = done
    assert table
    assert survived(new_source, new_target)
    assert set(SYMBOL.findall(new_source)) == {key[1:-1] for key in table}
    assert (restore(new_source, table), restore(new_target, table)) == (source, target)


def test_text_that_holds_a_symbol_already_is_left_alone() -> None:
    assert protect("⟦1⟧ Anna", "⟦1⟧ Anna", random.Random(0)) is None


def test_items_can_be_kept() -> None:
    assert protect("Anna 12", "Anna 12", random.Random(0), keep=1.0) is None


def test_a_lost_or_doubled_symbol_has_not_survived() -> None:
    assert survived("⟦1⟧ and ⟦2⟧", "⟦2⟧ und ⟦1⟧")
    assert not survived("⟦1⟧ and ⟦2⟧", "⟦1⟧ und ⟦1⟧")
    assert not survived("⟦1⟧", "⟦1⟧ ⟦1⟧")


def test_an_unknown_symbol_stays() -> None:
    assert restore("⟦1⟧ ⟦2⟧", {"⟦1⟧": "Anna"}) == "Anna ⟦2⟧"
