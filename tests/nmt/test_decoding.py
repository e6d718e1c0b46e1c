"""Greedy and beam search on tiny models, pinned, and against an exhaustive search."""

from __future__ import annotations

import itertools

import msgspec
import pytest
import torch

from nearsay.nmt.config import START, ModelConfig
from nearsay.nmt.decoding import beam_search, greedy
from nearsay.nmt.transformer import Seq2Seq
from tests.nmt.tiny import BASE, VARIANTS, assert_exact, sources, tiny_model


def naive_greedy(model: Seq2Seq, source: list[int], limit: int) -> list[int]:
    """No cache, no batch: the definition."""
    ids: list[int] = []
    while len(ids) < limit:
        fed = torch.tensor([[START, *model.config.prefix_ids, *ids]])
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0, -1]
        logits[list(model.config.suppressed_ids)] = float("-inf")
        token = int(logits.argmax())
        if token == model.config.eos_id:
            break
        ids.append(token)
    return ids


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_greedy_is_its_definition(variant: str) -> None:
    config = msgspec.structs.replace(VARIANTS[variant], suppressed_ids=(3, 7), prefix_ids=(9,))
    model = tiny_model(config, seed=5).pack()
    batch = sources(config, 9)
    for source, ids in zip(batch, greedy(model, batch, target_tokens_max=12), strict=True):

        def after(prefix: object, source: list[int] = source) -> torch.Tensor:
            fed = torch.tensor([[START, 9, *prefix]])  # type: ignore[misc]
            return model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0, -1]

        assert_exact(ids, naive_greedy(model, source, 12), after)


def test_limits() -> None:
    model = tiny_model(BASE)
    source = sources(BASE, 1, seed=3)
    full = greedy(model, source)[0]
    assert len(full) <= BASE.target_tokens_max
    assert greedy(model, source, target_tokens_max=3)[0] == full[:3]
    forced = tiny_model(msgspec.structs.replace(BASE, forced_eos=True))
    assert greedy(forced, source, target_tokens_max=3)[0] == full[:2]
    assert greedy(model, source, target_tokens_max=10_000)[0] == full


@torch.inference_mode()
def test_a_beam_as_wide_as_the_tree_finds_the_best_translation() -> None:
    config: ModelConfig = msgspec.structs.replace(BASE, trg_vocab_size=5, suppressed_ids=(4,))
    model = tiny_model(config, seed=2)
    source = sources(config, 1)[0]

    def score(ids: tuple[int, ...]) -> float:
        ended = (*ids, config.eos_id) if len(ids) < 2 else ids
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[START, *ended[:-1]]]))[0]
        logits[:, 4] = float("-inf")
        return float(logits.log_softmax(-1)[range(len(ended)), ended].sum()) / len(ended) ** 0.8

    everything = [ids for n in range(3) for ids in itertools.product((1, 2, 3), repeat=n)]
    best = sorted(everything, key=score, reverse=True)
    # 2 steps, 3 ids that go on: 8 rows hold every prefix, so nothing is lost on the way.
    found = beam_search(model, [source], width=8, n_best=8, length_penalty=0.8, target_tokens_max=2)[0]
    assert [h.ids for h in found[:3]] == best[:3]
    assert found[0].score == pytest.approx(score(found[0].ids), abs=1e-4)
    assert [h.truncated for h in found] == [len(h.ids) == 2 for h in found]


def test_width_one_is_greedy_and_batches_do_not_matter() -> None:
    for config in VARIANTS.values():
        model = tiny_model(config, seed=6).pack()
        batch = sources(config, 5)
        assert [list(h[0].ids) for h in beam_search(model, batch, width=1)] == greedy(model, batch)
        together = beam_search(model, batch, width=3, n_best=3, target_tokens_max=10)
        for source, hypotheses in zip(batch, together, strict=True):
            alone = beam_search(model, [source], width=3, n_best=3, target_tokens_max=10)[0]
            assert [h.ids for h in alone] == [h.ids for h in hypotheses]
            assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-4)
