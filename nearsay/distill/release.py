"""`nearsay distill` from trained networks to a shipped pair: export, evaluate, gate, publish."""

from __future__ import annotations

import random
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nearsay.distill.corpus import EVALUATION, evaluation_pairs
from nearsay.distill.evaluate import Score, Scores, evaluate, symbol_survival
from nearsay.distill.export import Quantization, export_ctranslate2
from nearsay.distill.gate import LADDER, LADDER_SET, gate, ladder
from nearsay.distill.options import PAIR, Corpora, Pair, Student, Target, Teacher, Threads
from nearsay.distill.options import Scores as ScoresFile
from nearsay.distill.publish import (
    SCORES_FILE,
    SOURCE_VOCAB,
    STUDENT,
    TARGET_VOCAB,
    TEACHER,
    folder_bytes,
    write_card,
    write_manifest,
)
from nearsay.distill.translator import BulkTranslator, load_spm, pieces_of
from nearsay.nmt.weights.load import read_weights
from nearsay.nmt.weights.native import save_native

app = typer.Typer()
console = Console()

SYMBOL_SETS = ("docs.dev", "newstest2014", "tatoeba.dev")


def export(model: Path, folder: Path, pair: Path, quantization: Quantization) -> None:
    """A model folder as a CTranslate2 folder, with the pair's vocabularies."""
    config, weights = read_weights(model)
    src, trg = pieces_of(load_spm(pair / SOURCE_VOCAB)), pieces_of(load_spm(pair / TARGET_VOCAB))
    export_ctranslate2(weights, config, folder, src_pieces=src, trg_pieces=trg, quantization=quantization)


def open_translator(folder: Path, pair: Path, precision: Quantization, threads: int) -> BulkTranslator:
    src, trg = load_spm(pair / SOURCE_VOCAB), load_spm(pair / TARGET_VOCAB)
    return BulkTranslator(folder, src, trg, precision=precision, threads=threads)


@app.command("evaluate")
def evaluate_command(
    teacher: Teacher,
    student: Student,
    corpora: Corpora,
    out: ScoresFile,
    pair: Pair = PAIR,
    target: Target = "de",
    limit: Annotated[int | None, typer.Option(help="Only the first pairs of each set.")] = None,
    threads: Threads = 1,
) -> None:
    """Score teacher, student and int8 student on all sets, and the survival of reserved symbols."""
    sets = {name: evaluation_pairs(corpora, target, name, limit) for name in EVALUATION}
    models: dict[str, dict[str, Score]] = {}
    symbols: dict[str, float] = {}
    sizes: dict[str, int] = {}
    signatures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        shipped = Path(scratch) / "shipped"
        save_native(read_weights(teacher), shipped, "int8")  # the origin computes in float with int8 weights
        roles: tuple[tuple[str, Path, Quantization], ...] = (
            ("teacher", shipped, "float32"),
            ("student", student, "float32"),
            ("student-int8", student, "int8"),
        )
        for role, model, quantization in roles:
            folder = Path(scratch) / role
            export(model, folder, pair, quantization)
            translator = open_translator(folder, pair, quantization, threads)
            models[role], signatures = evaluate(translator, sets)
            held_out = [p for name in SYMBOL_SETS for p in sets[name]]
            whole, single, count = symbol_survival(translator, held_out, random.Random(1))
            symbols[role] = round(whole, 4)
            if role != "student":  # which is shipped as int8 only
                sizes[role] = folder_bytes(shipped if role == "teacher" else folder)
            bleu = {name: s.bleu for name, s in models[role].items()}
            console.print(role, bleu, f"symbols: {whole:.3f} of {count} pairs, {single:.3f} of single ones")
    Scores(signatures=signatures, models=models, symbols=symbols, size_bytes=sizes).save(out)


@app.command("gate")
def gate_command(scores: ScoresFile, pair: Pair = PAIR) -> None:
    """Check new scores against the limits and the committed ones; exit code 1 when one fails."""
    committed = pair / SCORES_FILE
    new = Scores.load(scores)
    same = committed.exists() and committed.resolve() == scores.resolve()
    checks = gate(new, Scores.load(committed) if committed.exists() and not same else None)
    table = Table("check", "BLEU lost", "allowed", "")
    for check in checks:
        table.add_row(check.name, f"{check.value:.2f}", f"{check.limit:.2f}", "ok" if check.passed else "FAILED")
    console.print(table)
    for role in new.models:
        bleu, rungs = ladder(new, role)
        steps = " / ".join(f"{rung:g}" for rung in LADDER)
        console.print(f"{role}: {bleu} on {LADDER_SET}, {rungs} of {len(LADDER)} rungs ({steps})")
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


@app.command()
def publish(
    teacher: Teacher,
    student: Student,
    scores: ScoresFile,
    version: Annotated[str, typer.Option(help="Version of both models.")],
    pair: Pair = PAIR,
    licence: str = "MPL-2.0",
) -> None:
    """Write the pair's folder: int8 teacher and student, model.toml, scores, the model card's table."""
    source, _, target = pair.name.partition("-")
    measured = Scores.load(scores)
    save_native(read_weights(teacher), pair / TEACHER, "int8")
    export(student, pair / STUDENT, pair, "int8")
    if scores.resolve() != (pair / SCORES_FILE).resolve():
        measured.save(pair / SCORES_FILE)
    write_card(pair, measured)
    today = datetime.now(UTC).date()
    write_manifest(pair, source=source, target=target, version=version, licence=licence, published=today)
    console.print(f"{pair.name}: {folder_bytes(pair) / 1e6:.1f} MB")
