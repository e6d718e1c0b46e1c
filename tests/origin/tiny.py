"""Tiny random models, and a way to run sequences over them as the origin does."""

from __future__ import annotations

from pathlib import Path

import torch

from nearsay.nmt.config import ModelConfig
from nearsay.nmt.decoding import greedy
from nearsay.nmt.transformer import Seq2Seq
from nearsay.text.entry import ModelEntry
from origin.core.plan import Ended
from origin.core.scheduler import Limits, Scheduler
from origin.core.sequence import Ending, Spec
from origin.engine.torch_engine import TorchEngine, TorchOptions

VOCAB = 60
TARGET_MAX = 24
EOS_BIAS = 4.0


def config(**fields: object) -> ModelConfig:
    fields = {
        "d_model": 16,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn": 32,
        "decoder_ffn": 32,
        "src_vocab_size": VOCAB,
        "trg_vocab_size": VOCAB,
        "source_tokens_max": 32,
        "target_tokens_max": TARGET_MAX,
        **fields,
    }
    return ModelConfig(**fields)  # type: ignore[arg-type]


def model(kind: str = "attention", **fields: object) -> Seq2Seq:
    """Random weights under which the next id hangs on source, past and position, and targets end at many lengths.

    A shuffled target table as the output layer makes each id call for another one, round and round, rather than for
    itself; the seeds are those whose targets vary most.
    """
    seed, spread = {"attention": (7, 0.3), "ssru": (6, 0.2)}[kind]
    torch.manual_seed(seed)
    made = Seq2Seq(config(decoder_kind=kind, decoder_norm="pre", output_bias=True, tied_output=False, **fields))
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 1.0 if "embedding" in name else spread)
        made.output.weight.copy_(made.trg_embedding.weight[torch.randperm(made.config.trg_vocab_size)])
        made.output_bias.zero_()
        made.output_bias[0] = EOS_BIAS
    return made.eval()


def entry(name: str = "tiny", beam: int = 1) -> ModelEntry:
    return ModelEntry(
        id=name,
        version="1",
        source="en",
        target="de",
        tier="origin",
        engine="nearsay",
        path=Path(name),
        src_vocab=Path(name),
        trg_vocab=Path(name),
        src_vocab_hash="src",
        trg_vocab_hash="trg",
        beam=beam,
    )


class Origin:
    """Scheduler and torch engine, stepped by hand."""

    def __init__(self, *models: Seq2Seq, slots: int = 8, beam: int = 1, **limits: object) -> None:
        entries = [entry(f"tiny{number}", beam) for number in range(len(models))]
        by_name = dict(zip([e.name for e in entries], models, strict=True))
        options = TorchOptions(device="cpu", slots=slots, beam_max=min(slots, 4))
        self.engine = TorchEngine(entries, options, clock=lambda: 0.0, loader=lambda e, *_: by_name[e.name])
        self.served = self.engine.load()
        self.scheduler = Scheduler(self.served, Limits(**{"drafts_running_max": 8, **limits}))  # type: ignore[arg-type]
        self.ended: dict[int, Ending] = {}
        self.cut = 0
        self.ids = 0

    def submit(self, source: list[int], *, which: int = 0, **fields: object) -> int:
        self.ids += 1
        spec = Spec(
            id=self.ids,
            model=f"tiny{which}@1",
            source=tuple(source),
            arrived=0.0,
            deadline=1e9,
            **{"target_tokens_max": self.served[which].target_tokens_max, **fields},  # type: ignore[arg-type]
        )
        assert self.scheduler.submit(spec, 0.0) == []
        return spec.id

    def step(self) -> None:
        plan = self.scheduler.plan(0.0)
        result = self.engine.run(plan)
        self.cut += result.cut
        for effect in self.scheduler.apply(result, 0.0):
            if isinstance(effect, Ended):
                self.ended[effect.sequence] = effect.ending
        self.scheduler.check()

    def finish(self) -> dict[int, Ending]:
        """Step until everyone has ended."""
        for _ in range(2000):
            if not len(self.scheduler):
                return self.ended
            self.step()
        raise AssertionError("the engine never came to an end")


def sources(count: int, seed: int = 0) -> list[list[int]]:
    """Random sources of 1 to 20 ids and eos."""
    chance = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=chance))

    return [[*(draw(2, VOCAB) for _ in range(draw(1, 21))), 0] for _ in range(count)]


def limit(made: Seq2Seq) -> int:
    """Target ids that a sequence may get."""
    return made.config.target_tokens_max - len(made.config.prefix_ids)


def plain(made: Seq2Seq, source: list[int]) -> tuple[int, ...]:
    """Greedy ids of one source, alone."""
    return tuple(greedy(made, [source])[0])
