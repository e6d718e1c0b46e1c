"""`nearsay distill`: how the models in models/ are made, step by step. docs/distill.md has the steps in order.

Each command reads files, calls one part of this room, and writes files. No policy lives here.
"""

from __future__ import annotations

import shutil
import signal
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import torch
import typer
from rich.console import Console

from nearsay.distill import release
from nearsay.distill.corpus import MIX
from nearsay.distill.distil import distillation_sources, translate_sources
from nearsay.distill.malloc import restart_with_allocator
from nearsay.distill.options import (
    PAIR,
    RUNS,
    Corpora,
    Device,
    ModelOut,
    Other,
    Pair,
    Runs,
    Symbols,
    Target,
    Teacher,
    Threads,
)
from nearsay.distill.progress import ProgressView
from nearsay.distill.publish import SOURCE_VOCAB
from nearsay.distill.schedule import Schedule
from nearsay.distill.seed import bundled_encoder, join_parts, load_parts
from nearsay.distill.sources import SEED, Sources
from nearsay.distill.student import best_layers, keep_layers
from nearsay.distill.train import Recipe, Trainer, training_copy
from nearsay.distill.vocab_count import make_plan
from nearsay.distill.vocab_plan import VocabPlan
from nearsay.nmt.weights.load import build_model, read_weights
from nearsay.nmt.weights.native import save_native

app = typer.Typer(help="Make models: vocabulary, teacher, student, scores, gate.", no_args_is_help=True)
app.add_typer(release.app)
console = Console()

PLAN_FILE = "vocab.json"
TRIAL_BATCHES = 16


class Stop:
    """True once SIGINT or SIGTERM came, so that the work at hand can be saved."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


@app.command()
def vocab(corpora: Corpora, pair: Pair = PAIR, other: Other = "pt") -> None:
    """Plan and write the source vocabulary: drop foreign pieces, find rows for the symbols."""
    model, borrowed = bundled_encoder(f"en{other}")
    plan = make_plan(model, borrowed, corpora, other)
    edited, rows = plan.apply(borrowed.read_bytes())
    pair.mkdir(parents=True, exist_ok=True)
    (pair / PLAN_FILE).write_bytes(msgspec.json.encode(plan) + b"\n")
    (pair / SOURCE_VOCAB).write_bytes(edited)
    console.print(f"{len(rows):,} pieces, {len(plan.dropped):,} dropped, {len(plan.aliases)} characters added")


@app.command()
def seed(
    decoder: Annotated[Path, typer.Option(help="Folder with a decoder's safetensors.", exists=True, file_okay=False)],
    out: ModelOut,
    pair: Pair = PAIR,
    other: Other = "pt",
) -> None:
    """Join Mozilla's English encoder, on our source vocabulary, and a decoder."""
    model, borrowed = bundled_encoder(f"en{other}")
    plan = msgspec.json.decode((pair / PLAN_FILE).read_bytes(), type=VocabPlan)
    _, rows = plan.apply(borrowed.read_bytes())
    save_native(join_parts(model, rows, load_parts(decoder)), out, "kept")
    console.print(f"wrote {out}")


@app.command()
def train(
    start: Annotated[Path, typer.Option("--from", help="Model folder to start from.", exists=True)],
    out: ModelOut,
    tokens: Annotated[float, typer.Option(help="Target tokens to learn from in all, resumed runs included.")],
    corpora: Corpora,
    distilled: Annotated[Path | None, typer.Option(help="Teacher's translations (`translate`).")] = None,
    references: Annotated[float, typer.Option(help="Share of the references to keep beside them.")] = 1.0,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 6e-4,
    warm_up: Annotated[int, typer.Option(help="Steps until that rate, after each start.")] = 100,
    dropout: Annotated[float, typer.Option(help="Share of values dropped.")] = 0.05,
    symbols: Symbols = 0.5,
    pair: Pair = PAIR,
    runs: Runs = RUNS,
    target: Target = "de",
    threads: Threads = 1,
    device: Device = "auto",
) -> None:
    """Train a decoder; stop with Ctrl-C or SIGTERM, and go on with the same command."""
    restart_with_allocator()
    torch.set_num_threads(threads)
    config, weights = read_weights(start)
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    schedule = Schedule(peak=rate, warm_up=warm_up)
    recipe = Recipe(int(tokens), schedule=schedule, dropout=dropout, symbols=symbols, seed=SEED)
    model = training_copy(build_model(config, weights), where)
    trainer = Trainer(model, recipe, out.with_name(out.name + ".checkpoint.safetensors"))
    data, shares = Sources(corpora, pair, runs, target, distilled, references).load()
    with ProgressView(console) as view:
        finished = trainer.run(data, shares, view, Stop())
    # What was not trained is stored as it came: an int8 encoder stays exactly what it was.
    save_native((config, {**weights, **trainer.averages}), out, "kept")
    console.print(f"{'finished' if finished else 'stopped'}; wrote {out}")


@app.command()
def translate(
    teacher: Teacher,
    out: Annotated[Path, typer.Option(help="File to write, or to go on with (.tsv.gz).")],
    corpora: Corpora,
    sentences: Annotated[int, typer.Option(help="How many sources, at most.")] = 1_000_000,
    symbols: Symbols = 0.5,
    pair: Pair = PAIR,
    runs: Runs = RUNS,
    target: Target = "de",
    threads: Threads = 1,
) -> None:
    """Let the teacher translate training sources, greedily and in int8."""
    folder = runs / "translating"
    release.export(teacher, folder, pair, "int8")
    translator = release.open_translator(folder, pair, "int8", threads)
    sources = distillation_sources(corpora, target, MIX, symbols=symbols, seed=SEED)[:sentences]
    for done in translate_sources(sources, translator.translate, out, Stop()):
        console.print(f"{done:,} of {len(sources):,}")
    shutil.rmtree(folder)


@app.command()
def student(
    teacher: Teacher,
    out: ModelOut,
    corpora: Corpora,
    layers: Annotated[int, typer.Option(help="Decoder layers to keep.", min=1)] = 2,
    pair: Pair = PAIR,
    runs: Runs = RUNS,
    target: Target = "de",
) -> None:
    """Cut a student out of the teacher: the choice of layers that loses least."""
    config, weights = read_weights(teacher)
    trial = list(islice(Sources(corpora, pair, runs, target).batches(config.pad_id), TRIAL_BATCHES))
    kept = best_layers(config, weights, layers, trial)
    save_native(keep_layers(config, weights, kept), out, "kept")
    console.print(f"kept decoder layers {kept}; wrote {out}")
