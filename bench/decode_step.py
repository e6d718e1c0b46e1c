"""Case decode_step: the origin's inner loop beside `transformers`, the same weights and steps in one run.

Peer: `generate(num_beams=1)` on a random M2M100 checkpoint with the decoder of our en-de teacher (6 layers of 256).
Ours: `nearsay.nmt`'s own steps on that checkpoint. Rounds alternate, the ratio is the median over rounds of one peer's
time over ours, so that a busy machine spares neither.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration

from bench.report import Measure, Note, write_result
from nearsay.nmt.config import START
from nearsay.nmt.decoding import best_ids, start, step
from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights import load_model

STEPS, SOURCE_TOKENS, VOCABULARY = 24, 22, 8000
ROWS = (1, 8, 32)
FLOOR, TARGET = 1.0, 1.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--step-rounds", type=int, default=7)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    torch.set_num_threads(options.threads)
    theirs = _checkpoint()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_model(Path(folder))
        half = load_model(Path(folder), dtype=torch.bfloat16)
    measures: list[Measure] = []
    notes: dict[str, Note] = {"threads": options.threads, "steps": STEPS, "source_tokens": SOURCE_TOKENS}
    for rows in ROWS:
        batch = torch.randint(4, VOCABULARY, (rows, SOURCE_TOKENS))
        times = _rounds(
            options.step_rounds,
            transformers=partial(_generate, theirs, batch),
            ours=partial(_decode, ours, batch),
            ours_bf16=partial(_decode, half, batch),
        )
        notes |= {f"{name}_ms_per_step_rows_{rows}": round(min(t), 3) for name, t in times.items()}
        ratio = statistics.median(t / o for t, o in zip(times["transformers"], times["ours"], strict=True))
        measures.append(Measure(f"transformers_over_ours_rows_{rows}", ratio, "", FLOOR, TARGET, "higher"))
    return write_result("decode_step", measures, notes)


def _checkpoint() -> M2M100ForConditionalGeneration:
    torch.manual_seed(0)
    config = M2M100Config(
        vocab_size=VOCABULARY,
        d_model=256,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        max_position_embeddings=64,
    )
    model: M2M100ForConditionalGeneration = M2M100ForConditionalGeneration(config)
    model.train(False)
    return model


def _rounds(count: int, **ways: Callable[[], float]) -> dict[str, list[float]]:
    """Milliseconds a step of each way in each round; the first round warms up and is left out."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count + 1):
        for name, way in ways.items():
            spent = way()
            if number:
                times[name].append(spent)
    return times


def _generate(model: M2M100ForConditionalGeneration, batch: torch.Tensor) -> float:
    states = model.get_encoder()(batch)
    begin = time.perf_counter()
    model.generate(
        encoder_outputs=states,
        attention_mask=torch.ones_like(batch),
        num_beams=1,
        do_sample=False,
        min_new_tokens=STEPS,
        max_new_tokens=STEPS,
    )
    return (time.perf_counter() - begin) * 1000 / STEPS


@torch.inference_mode()
def _decode(model: Seq2Seq, batch: torch.Tensor) -> float:
    slots = list(range(len(batch)))
    cache = model.new_cache(len(slots), SOURCE_TOKENS, STEPS)
    start(model, cache, slots, batch.tolist())
    ids = [START] * len(slots)
    begin = time.perf_counter()
    for _ in range(STEPS):
        ids = best_ids(step(model, cache, slots, ids), model.config.suppressed_ids)
    return (time.perf_counter() - begin) * 1000 / STEPS
