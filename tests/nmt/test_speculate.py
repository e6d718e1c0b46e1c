from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearsay.nmt.config import START
from nearsay.nmt.decoding import best_ids, greedy, start
from nearsay.nmt.speculate import Accepted, accept, accept_chosen
from tests.nmt.tiny import VARIANTS, sources, tiny_model

IDS = st.lists(st.integers(0, 5), max_size=8)


@given(IDS, IDS)
def test_longest_agreeing_prefix_and_the_next_choice(draft: list[int], chosen: list[int]) -> None:
    chosen = (chosen + [6] * 9)[: len(draft) + 1]
    length, bonus = accept_chosen(draft, chosen)
    assert draft[:length] == chosen[:length] and bonus == chosen[length]
    assert length == len(draft) or draft[length] != chosen[length]


def test_logits() -> None:
    logits = torch.nn.functional.one_hot(torch.tensor([4, 2, 3, 1]), 6).float()
    assert accept([4, 2, 5], logits) == Accepted(2, 3)
    assert accept([4, 2, 3], logits) == Accepted(3, 1)
    assert accept([], logits) == Accepted(0, 4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wrong_at", [0, 1, 4, 99])
@torch.inference_mode()
def test_any_draft_leads_to_the_greedy_translation(variant: str, wrong_at: int) -> None:
    model = tiny_model(VARIANTS[variant], seed=5)
    config = model.config
    for source in sources(config, 4, seed=wrong_at):
        truth = greedy(model, [source], target_tokens_max=12)[0]
        draft = [token if i != wrong_at else 1 + token % 50 for i, token in enumerate(truth)]
        cache = model.new_cache(2)
        start(model, cache, [1], [source])
        ids, previous = list[int](), START
        while len(ids) < len(truth):
            fed = [previous, *draft[len(ids) :]][: config.target_tokens_max - cache.lengths[1]]
            base = cache.lengths[1]
            logits = model.verify(cache, torch.tensor([1]), torch.tensor([fed]), torch.tensor([len(fed)]))[0]
            length, bonus = accept_chosen(fed[1:], best_ids(logits, config.suppressed_ids))
            cache.rewind([1], [base + 1 + length])
            ids += [*fed[1 : 1 + length], bonus]
            previous, draft = bonus, [*ids, *truth[len(ids) :]]
            if bonus == config.eos_id:
                ids.pop()
                break
        assert ids[: len(truth)] == truth
