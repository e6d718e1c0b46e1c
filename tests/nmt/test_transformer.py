"""encode, decode_step and verify over slots, against the plain teacher-forced forward pass."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
import pytest
import torch
from torch import Tensor

from nearsay.nmt.cache import SlotCache
from nearsay.nmt.config import START
from nearsay.nmt.decoding import feed_prefix, pad_ids, start, step
from nearsay.nmt.transformer import Seq2Seq
from tests.nmt.tiny import BASE, VARIANTS, sources, tiny_model

SLOTS, STEPS = 7, 40


@dataclass
class Sequence:
    source: list[int]
    fed: list[int] = field(default_factory=list)


def logits_of(model: Seq2Seq, sequence: Sequence) -> Tensor:
    """[len(fed), V], from nothing but the ids."""
    return model(torch.tensor([sequence.source]), torch.tensor([len(sequence.source)]), torch.tensor([sequence.fed]))[0]


class Program:
    """A random life of a cache: sequences start, step, verify, rewind, are copied, end, and their slots are reused."""

    def __init__(self, model: Seq2Seq, seed: int) -> None:
        self.model, self.random = model, random.Random(seed)
        self.cache = model.new_cache(SLOTS)
        self.running: dict[int, Sequence] = {}

    def some(self) -> list[int]:
        roomy = [s for s, q in self.running.items() if len(q.fed) < model_limit(self.model)]
        return self.random.sample(roomy, self.random.randint(1, len(roomy))) if roomy else []

    def begin(self) -> None:
        free = [s for s in range(SLOTS) if s not in self.running] or [self.random.randrange(SLOTS)]
        slots = self.random.sample(free, self.random.randint(1, len(free)))
        fresh = sources(self.model.config, len(slots), self.random.randrange(1000))
        start(self.model, self.cache, slots, fresh)
        self.running |= {slot: Sequence(source) for slot, source in zip(slots, fresh, strict=True)}

    def feed(self, slot: int, count: int) -> list[int]:
        fed = self.running[slot].fed
        new = [self.random.randrange(self.model.config.trg_vocab_size) for _ in range(count)]
        new = new if fed else [START, *new[1:]]
        fed += new
        return new

    def decode_step(self) -> None:
        if slots := self.some():
            logits = step(self.model, self.cache, slots, [self.feed(slot, 1)[0] for slot in slots])
            for slot, row in zip(slots, logits, strict=True):
                assert torch.allclose(row, logits_of(self.model, self.running[slot])[-1], atol=1e-4)

    def verify(self) -> None:
        if slots := self.some():
            room = [model_limit(self.model) - len(self.running[slot].fed) for slot in slots]
            fed = [self.feed(slot, self.random.randint(1, min(5, n))) for slot, n in zip(slots, room, strict=True)]
            ids, lens = pad_ids(fed, 0)
            logits = self.model.verify(self.cache, torch.tensor(slots), ids, lens)
            for slot, new, rows in zip(slots, fed, logits, strict=True):
                expected = logits_of(self.model, self.running[slot])[-len(new) :]
                assert torch.allclose(rows[: len(new)], expected, atol=1e-4)
            for slot, new in zip(slots, fed, strict=True):
                kept = len(self.running[slot].fed) - self.random.randrange(len(new) + 1)
                self.cache.rewind([slot], [kept])
                del self.running[slot].fed[kept:]

    def copy(self) -> None:
        if len(self.running) > 1:
            to = self.random.sample(range(SLOTS), self.random.randint(1, SLOTS))
            origin = [self.random.choice(list(self.running)) for _ in to]
            moved = [Sequence(self.running[o].source, list(self.running[o].fed)) for o in origin]
            self.cache.copy(origin, to, source=True)
            self.running |= dict(zip(to, moved, strict=True))

    def end(self) -> None:
        if self.running:
            del self.running[self.random.choice(list(self.running))]

    def run(self) -> None:
        self.begin()
        for _ in range(STEPS):
            self.random.choice([self.begin, self.decode_step, self.decode_step, self.verify, self.copy, self.end])()


def model_limit(model: Seq2Seq) -> int:
    return model.config.target_tokens_max


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_any_life_of_a_cache_gives_the_logits_of_the_ids_alone(variant: str, packed: bool) -> None:
    model = tiny_model(VARIANTS[variant])
    if packed:
        model.pack()
    for seed in range(3):
        Program(model, seed).run()


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_a_row_is_the_same_alone_and_among_32(variant: str) -> None:
    model = tiny_model(VARIANTS[variant]).pack()
    batch = sources(model.config, 32)
    crowd, order = model.new_cache(40), random.Random(1).sample(range(40), 32)
    start(model, crowd, order, batch)
    ids = [[START] * 32, *([random.Random(r).randrange(50) for r in range(i, i + 32)] for i in range(6))]
    together = [step(model, crowd, order, row) for row in ids]
    for row, source in enumerate(batch):
        cache = model.new_cache(1)
        start(model, cache, [0], [source])
        for logits, fed in zip(together, ids, strict=True):
            assert torch.allclose(step(model, cache, [0], [fed[row]])[0], logits[row], atol=2e-5)


@torch.inference_mode()
def test_reused_slot_leaves_no_trace_not_one_bit() -> None:
    model = tiny_model(BASE)
    used, fresh = model.new_cache(3), model.new_cache(3)
    start(model, used, [2, 0, 1], sources(BASE, 3, seed=9))
    for ids in ([START] * 3, [5, 6, 7], [8, 9, 10]):
        step(model, used, [2, 0, 1], ids)
    for cache in (used, fresh):
        start(model, cache, [0, 1], sources(BASE, 2, seed=4))
    for ids in ([START] * 2, [11, 12], [13, 14]):
        assert torch.equal(step(model, used, [0, 1], ids), step(model, fresh, [0, 1], ids))


@torch.inference_mode()
def test_bfloat16_stays_close_and_ends_where_it_should() -> None:
    model = tiny_model(BASE)
    half = tiny_model(BASE).to(torch.bfloat16).pack()
    batch = sources(BASE, 6)
    logits = []
    for each in (model, half):
        cache = each.new_cache(6)
        assert cache.dtype == torch.float32
        start(each, cache, range(6), batch)
        logits.append(feed_prefix(each, cache, range(6), (7, 9)).float())
    assert (logits[0] - logits[1]).abs().mean() < 0.05 * logits[0].abs().mean()


def test_forward_trains_every_parameter() -> None:
    for config in VARIANTS.values():
        model = tiny_model(config).requires_grad_(True).train()
        logits = model(
            torch.tensor([[5, 6, 0], [7, 0, 0]]), torch.tensor([3, 2]), torch.tensor([[START, 4], [START, 5]])
        )
        logits.square().sum().backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@torch.inference_mode()
def test_a_full_idle_slot_between_busy_ones_is_no_matter() -> None:
    config = msgspec.structs.replace(BASE, target_tokens_max=16)
    model = tiny_model(config)
    cache = model.new_cache(3)
    start(model, cache, [0, 1, 2], sources(config, 3))
    for token in [START, *[5] * 15]:
        step(model, cache, [1], [token])
    step(model, cache, [0], [START])
    feed_prefix(model, cache, [2], (5, 6))
    assert step(model, cache, [0, 2], [5, 7]).isfinite().all()


def test_a_sequence_that_outgrows_its_slot_is_our_mistake() -> None:
    model = tiny_model(BASE)
    cache = SlotCache(BASE, 2, source_tokens_max=4, target_tokens_max=2)
    start(model, cache, [0], [[5, 6, 7, 0]])
    step(model, cache, [0], [START])
    step(model, cache, [0], [5])
    with pytest.raises(AssertionError, match="outgrew"):
        step(model, cache, [0], [6])
    with pytest.raises(AssertionError, match="outgrew"):
        start(model, cache, [0], [[5, 6, 7, 8, 0]])
    with pytest.raises(AssertionError, match="only once"):
        step(model, cache, [1, 1], [START, START])
    with pytest.raises(AssertionError, match="goes back"):
        cache.rewind([1], [1])
