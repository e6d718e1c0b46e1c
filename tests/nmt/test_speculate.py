from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearsay.nmt.config import START
from nearsay.nmt.decoding import best_ids, greedy, start
from nearsay.nmt.speculate import FRUITLESS_MAX, Draft, accept_chosen
from tests.nmt.tiny import VARIANTS, sources, tiny_model

IDS = st.lists(st.integers(0, 5), max_size=8)


@given(IDS, IDS)
def test_longest_agreeing_prefix_and_the_next_choice(draft: list[int], chosen: list[int]) -> None:
    chosen = (chosen + [6] * 9)[: len(draft) + 1]
    length, bonus = accept_chosen(draft, chosen)
    assert draft[:length] == chosen[:length] and bonus == chosen[length]
    assert length == len(draft) or draft[length] != chosen[length]


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


class Model:
    """Says `truth`, whatever is drafted: what a pass over a proposal chooses, and how many passes it took.

    Behind a wrong id it chooses as was proposed, or, if it is `sure`, as if the id had been right.
    """

    def __init__(self, truth: list[int], draft: list[int], *, sure: bool = False) -> None:
        self.sure = sure
        self.truth = [*truth, EOS]
        self.draft = Draft(draft, EOS)
        self.said: list[int] = []
        self.passes = self.fed = 0

    def run(self) -> None:
        while not self.said or self.said[-1] != EOS:
            room = len(self.truth) - len(self.said) - 1
            proposed = self.draft.propose(self.said, room)
            assert len(proposed) <= room
            chosen = self.truth[len(self.said) :]
            length, bonus = accept_chosen(proposed, chosen)
            behind = chosen[length + 1 :] if self.sure else proposed[length + 1 :]
            self.draft.settle([*chosen[: length + 1], *behind][: len(proposed)], length)
            self.said += [*proposed[:length], bonus]
            self.passes += 1
            self.fed += 1 + len(proposed)
            assert self.said == self.truth[: len(self.said)]


EOS = 0
WORDS = st.lists(st.integers(1, 9), max_size=30)


@given(WORDS, WORDS)
def test_any_draft_gives_the_truth_in_no_more_passes_than_steps(truth: list[int], draft: list[int]) -> None:
    model = Model(truth, draft)
    model.run()
    assert model.said == model.truth and model.passes <= len(model.truth)
    assert model.fed <= model.passes + len(draft) * model.passes


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60, unique=True),
    st.data(),
)
def test_a_damaged_word_costs_a_few_passes_not_the_tail(truth: list[int], data: st.DataObject) -> None:
    """All ids differ, so that the draft is found again as soon as they agree: by then two ids and one proposal are
    spent on each wrong, missing or additional word."""
    draft = list(truth)
    damages = data.draw(st.integers(0, 3))
    for _ in range(damages):
        at = data.draw(st.integers(0, len(draft)))
        how = data.draw(st.sampled_from(["put", "drop", "change"]))
        if how == "put":
            draft.insert(at, 20_000)
        elif draft and at < len(draft):
            draft[at : at + 1] = [20_000] if how == "change" else []
    model = Model(truth, draft)
    model.run()
    # After each damage the draft is trusted step by step: 4, 8, 16 ids, then to the end.
    assert model.passes <= 1 + damages * 6


def test_one_wrong_word() -> None:
    truth = [*range(1, 41)]
    for draft in ([*truth[:9], 99, *truth[10:]], [*truth[:9], *truth[10:]], [*truth[:9], 99, *truth[9:]]):
        model = Model(truth, draft)
        model.run()
        assert model.passes <= 6


def test_a_second_wrong_word_is_put_right_by_the_pass_over_the_first() -> None:
    truth = [*range(1, 41)]
    draft = [*truth[:5], 99, *truth[6:10], 98, *truth[11:20], 97, *truth[21:]]
    stubborn, sure = Model(truth, draft), Model(truth, draft, sure=True)
    stubborn.run()
    sure.run()
    assert stubborn.passes == 6 and sure.passes == 3


@given(WORDS, WORDS, WORDS)
def test_whatever_is_chosen_behind_a_wrong_word(truth: list[int], draft: list[int], chosen: list[int]) -> None:
    """Ends within the proposal, fewer choices than ids: nothing is proposed that must not be, and the truth is said."""
    model = Model(truth, [*draft, EOS, *truth], sure=True)
    proposed = model.draft.propose([], 30)
    if proposed and proposed[0] != [*truth, EOS][0]:
        model.draft.settle([[*truth, EOS][0], *chosen, EOS, EOS][: len(proposed)], 0)
        model.said = [[*truth, EOS][0]]
    model.run()
    assert model.said == model.truth and model.passes <= len(model.truth)


def test_a_moved_clause_is_found_again() -> None:
    first, second = list(range(1, 20)), list(range(30, 50))
    model = Model([*first, *second], [*second, *first])
    model.run()
    assert model.passes <= 12


def test_a_useless_draft_is_given_up() -> None:
    truth = [n for k in range(40) for n in (5, 100 + k)]  # a chance match every other id
    model = Model(truth, [5, 1, 5, 2, 5, 3])
    model.run()
    assert model.passes >= len(truth) - 4  # an id or two stood by chance
    assert model.fed - model.passes <= 6 + FRUITLESS_MAX * 6
    assert model.draft.propose(model.said, 99) == ()


def test_a_second_draft_helps_where_the_first_fails() -> None:
    truth = [*range(1, 31)]
    first, second = [*truth[:10], *range(60, 80)], [90, *truth[8:]]
    alone, both = Model(truth, first), Model(truth, [*first, EOS, *second])
    alone.run()
    both.run()
    assert alone.passes > 15 and both.passes <= 3


@given(WORDS, WORDS, WORDS)
def test_no_end_is_ever_proposed(truth: list[int], first: list[int], second: list[int]) -> None:
    model = Model(truth, [*first, EOS, *second])
    while (proposed := model.draft.propose(model.said, 30)) and model.said != truth:
        assert EOS not in proposed
        model.said = truth[: len(model.said) + 1]
        model.draft.settle(proposed, 0)
