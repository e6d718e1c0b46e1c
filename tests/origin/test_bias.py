"""Biased decoding in the torch engine: its definition, whatever is drafted and whoever runs beside it."""

from __future__ import annotations

import pytest
import torch

from nearsay.nmt.config import START
from nearsay.nmt.decoding import Leaning, lean
from nearsay.nmt.transformer import Seq2Seq
from tests.origin import tiny

SOURCES = tiny.sources(8, seed=3)
MODELS = {
    "attention": tiny.model(),
    "ssru": tiny.model("ssru"),
    "prefix": tiny.model(prefix_ids=(5, 9)),
    "suppressed": tiny.model(suppressed_ids=(3, 7, 11, 40)),
}
each_model = pytest.mark.parametrize("name", MODELS)


@torch.no_grad()
def definition(model: Seq2Seq, source: list[int], toward: tuple[int, ...], bias: float) -> tuple[int, ...]:
    """Greedy over (1 - bias) * p + bias * [it is the preferred id], as long as all ids so far were preferred."""
    config = model.config
    ids: list[int] = []
    while len(ids) < tiny.limit(model):
        fed = torch.tensor([[START, *config.prefix_ids, *ids]])
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0, -1]
        logits[list(config.suppressed_ids)] = float("-inf")
        chances = logits.softmax(-1)
        if (
            toward[: len(ids)] == tuple(ids)
            and len(ids) < len(toward)
            and toward[len(ids)] not in config.suppressed_ids
        ):
            chances = (1 - bias) * chances
            chances[toward[len(ids)]] += bias
        token = int(chances.argmax())
        if token == config.eos_id:
            break
        ids.append(token)
    return tuple(ids)


def like(ids: tuple[int, ...], at: int) -> tuple[int, ...]:
    """An earlier answer: another id at a place, and a tail that was wrong."""
    return (*ids[:at], 1 + (ids[at] + 7) % 50 if at < len(ids) else 9, *ids[at + 1 :], 8)


@each_model
@pytest.mark.parametrize("bias", [0.05, 0.45, 0.6, 0.95])
def test_drafted_or_not_in_a_batch_or_alone_it_is_the_definition(name: str, bias: float) -> None:
    model = MODELS[name]
    origin = tiny.Origin(model, slots=6)
    expected: dict[int, tuple[int, ...]] = {}
    leaning = 0
    for number, source in enumerate(SOURCES):
        plain = tiny.plain(model, source)
        for toward in (like(plain, number % 4), (7, *plain)):
            ids = definition(model, source, toward, bias)
            leaning += ids != plain
            for draft in ((), plain, toward, ids, (*toward[:2], 50, *toward[3:], 0, *plain)):
                expected[origin.submit(source, draft=draft, toward=toward, bias=bias)] = ids
        expected[origin.submit(source)] = plain
    ended = origin.finish()
    assert {number: ended[number].ids for number in expected} == expected
    assert leaning >= (2 if bias > 0.5 else 0), "some are not what they would be without a bias"


@each_model
def test_it_leans_on_nothing_more_than_on_itself(name: str) -> None:
    """What a session answers without decoding is what decoding would give."""
    for source in SOURCES:
        toward = like(tiny.plain(MODELS[name], source), 2)
        first = definition(MODELS[name], source, toward, 0.4)
        assert definition(MODELS[name], source, first, 0.4) == first


@each_model
def test_evicted_and_resumed(name: str) -> None:
    model = MODELS[name]
    origin = tiny.Origin(model, slots=2)
    expected = {}
    for source in SOURCES[:4]:
        toward = like(tiny.plain(model, source), 5)
        ids = definition(model, source, toward, 0.6)
        expected[origin.submit(source, toward=toward, bias=0.6, draft=toward[:3], priority="batch")] = ids
    for source in SOURCES[4:]:
        origin.step()
        expected[origin.submit(source)] = tiny.plain(model, source)
    ended = origin.finish()
    assert origin.scheduler.counts.evictions > 0
    assert {number: ended[number].ids for number in expected} == expected


def test_log_prob_is_the_models_own() -> None:
    model, source = MODELS["attention"], SOURCES[1]
    plain = tiny.plain(model, source)
    origin = tiny.Origin(model)
    number = origin.submit(source, toward=like(plain, 1), bias=0.9, want_log_prob=True)
    ending = origin.finish()[number]
    assert ending.ids != plain
    with torch.no_grad():
        fed = torch.tensor([[START, *ending.ids]])
        scores = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0].log_softmax(-1)
    said = [*ending.ids, 0] if ending.reason == "stop" else [*ending.ids]
    assert ending.log_prob == pytest.approx(sum(float(scores[at, token]) for at, token in enumerate(said)), abs=1e-3)


def test_what_is_never_generated_or_not_a_number_is_not_leant_on() -> None:
    logits = torch.tensor([[[1.0, float("-inf"), 0.5]], [[float("nan"), 1.0, 0.0]]])
    best, chosen = logits.max(-1)
    lean(logits, best, chosen, [Leaning(0, 0, 1, 0.9), Leaning(1, 0, 1, 0.9)])
    assert chosen[0, 0] == 0 and not best[1, 0].isfinite()
    lean(logits, best, chosen, [Leaning(0, 0, 2, 0.3)])
    assert (chosen[0, 0], best[0, 0]) == (2, 0.5)
    lean(logits, best, chosen, [])
