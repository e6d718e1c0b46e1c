from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from nearsay.distill.translator import load_spm, pieces_of
from nearsay.distill.vocab_plan import VocabPlan, copied_words, farthest, plan_vocab
from tests.distill.kit import toy_vocab


def test_only_words_that_come_through_every_time_are_copied() -> None:
    def translate(sentences: Sequence[str]) -> list[str]:
        return [s.replace("Baixa", "x", 1) if "garden" in s else s for s in sentences]

    assert copied_words({5: "Kobrin", 6: "Baixa"}, translate) == [5]


def test_farthest_vectors_are_spread() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    assert farthest(vectors, 3) == [0, 3, 2]


def test_a_plan_drops_foreign_pieces_and_finds_rows() -> None:
    words = [f"▁Nome{k}" for k in range(40)]
    pieces = ["</s>", "<unk>", "'", "▁the", "▁não", "▁casa", "▁rare", "é", *words]
    english, other = Counter({2: 5, 3: 9}), Counter({5: 2, 9: 1})
    torch.manual_seed(0)
    plan = plan_vocab(pieces, english, other, torch.randn(len(pieces), 8), list(range(8, 48)), ["’", "#"])
    assert len(plan.symbols) == 32 and plan.symbols == sorted(plan.symbols)
    assert plan.aliases[5] == ("’", 2)
    assert set(plan.dropped) <= {4, 9} and 4 in plan.dropped
    assert not set(plan.dropped) & {0, 1, 2, 3, 6, 7}


def test_too_few_copied_pieces_are_refused() -> None:
    with pytest.raises(ValueError, match="only 1"):
        plan_vocab(["</s>", "<unk>", "▁A"], Counter(), Counter(), torch.randn(3, 2), [2], [])


def test_a_plan_makes_a_vocabulary_and_its_rows(tmp_path: Path) -> None:
    before = toy_vocab(tmp_path, "source.spm", 0)
    symbol = before.piece_to_id("⟦0⟧")
    alias = before.piece_to_id("⟦6⟧")
    plan = VocabPlan([symbol], {alias: ("’", 40)}, [before.piece_to_id("⟦8⟧")])
    edited, rows = plan.apply((tmp_path / "source.spm").read_bytes())
    (tmp_path / "edited.spm").write_bytes(edited)
    after = load_spm(tmp_path / "edited.spm")
    assert len(rows) == after.vocab_size() == before.vocab_size() - 1
    assert rows[after.piece_to_id("⟦0⟧")] == symbol
    assert rows[after.piece_to_id("’")] == 40
    assert "⟦8⟧" not in pieces_of(after)
