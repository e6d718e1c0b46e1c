"""The training loop: batches in, better decoder weights out; stops, checkpoints and resumes.

Decides: when to step, save, report and stop. Must not know: where pairs come from, how progress is shown.
Invariants: the encoder never changes; a run that was stopped and resumed sees each batch of an epoch once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from nearsay.distill.checkpoint import Progress, load_checkpoint, save_checkpoint
from nearsay.distill.dataset import Batch, Packed, batches, epoch_rows
from nearsay.distill.loss import tied_loss
from nearsay.distill.network import DropoutPool, decode_states
from nearsay.distill.optimiser import MasterAdam
from nearsay.distill.schedule import Schedule
from nearsay.nmt.transformer import Seq2Seq

PAUSE_S = 10.0  # a step longer than this was a pause of the whole process, not work


@dataclass(frozen=True, slots=True)
class Recipe:
    """tokens_total: target tokens of the whole run. batch_tokens: padded target positions a step. symbols: share of
    the pairs with protected items that show them as reserved symbols. average: decay of the averaged weights a step."""

    tokens_total: int
    batch_tokens: int = 4000
    schedule: Schedule = field(default_factory=Schedule)
    dropout: float = 0.1
    smoothing: float = 0.1
    symbols: float = 0.3
    average: float = 0.995
    seed: int = 1
    save_every_s: float = 120.0
    report_every_steps: int = 10


@dataclass(frozen=True, slots=True)
class Report:
    """loss: plain cross entropy a target token, in nats, over the steps since the last report."""

    step: int
    tokens: int
    tokens_total: int
    loss: float
    rate: float
    tokens_per_s: float
    eta_s: float


class Trainer:
    """Trains a model's decoder in place; `averages` are the weights to keep."""

    def __init__(self, model: Seq2Seq, recipe: Recipe, checkpoint: Path) -> None:
        self._model, self._recipe, self._checkpoint = model, recipe, checkpoint
        model.requires_grad_(False)
        learning = {n: p for n, p in model.named_parameters() if n.startswith(("decoder.", "trg_embedding."))}
        for parameter in learning.values():
            parameter.requires_grad_(True)
        self._optimiser = MasterAdam(learning, average=recipe.average)
        self._dropout = DropoutPool(recipe.dropout, seed=recipe.seed, dtype=model.dtype).to(model.device)
        self.progress = Progress()
        if checkpoint.exists():
            self.progress, masters, averages = load_checkpoint(checkpoint)
            self._optimiser.load(masters, averages)

    def run(
        self, data: Packed, shares: Sequence[float], report: Callable[[Report], None], stop: Callable[[], bool]
    ) -> bool:
        """Trains until the recipe's tokens are learnt from (True) or `stop` says so (False); saves either way."""
        recipe, total = self._recipe, self._recipe.tokens_total
        fresh, loss, tokens, spent, saved = 0, 0.0, 0, 0.0, time.monotonic()
        steady = 0.0
        for batch in self._batches(data, shares):
            if self.progress.tokens >= total or stop():
                break
            started = time.monotonic()
            rate = recipe.schedule.rate(fresh, self.progress.tokens / total)
            loss += self.step(batch, rate)
            fresh, tokens = fresh + 1, tokens + batch.tokens
            spent += min(time.monotonic() - started, PAUSE_S)
            if fresh % recipe.report_every_steps == 0:
                speed = tokens / max(spent, 1e-9)
                steady = speed if steady == 0.0 else 0.9 * steady + 0.1 * speed
                eta = max(0, total - self.progress.tokens) / steady
                done = self.progress
                report(Report(done.step, done.tokens, total, loss / tokens, rate, speed, eta))
                loss, tokens, spent = 0.0, 0, 0.0
            if time.monotonic() - saved > recipe.save_every_s:
                self.save()
                saved = time.monotonic()
        self.save()
        return self.progress.tokens >= total

    def step(self, batch: Batch, rate: float) -> float:
        """Learns from one batch; its summed cross entropy in nats."""
        model, device = self._model, self._model.device
        src, src_lens, trg = batch.src.to(device), batch.src_lens.to(device), batch.trg.to(device)
        states = decode_states(model, src, src_lens, trg, self._dropout)
        real = torch.arange(trg.shape[1], device=device) < batch.trg_lens.to(device)[:, None]
        loss, exact = tied_loss(states[real], model.trg_table, trg[real], self._recipe.smoothing)
        (loss / batch.tokens).backward()  # type: ignore[no-untyped-call]
        self._optimiser.step(rate)
        done = self.progress
        self.progress = Progress(done.step + 1, done.tokens + batch.tokens, done.epoch, done.batch + 1)
        return float(exact)

    def save(self) -> None:
        save_checkpoint(self._checkpoint, self.progress, self._optimiser.masters, self._optimiser.averages)

    @property
    def averages(self) -> dict[str, Tensor]:
        """The learnt parameters, float32, as their running average: the weights to keep."""
        return self._optimiser.averages

    def _batches(self, data: Packed, shares: Sequence[float]) -> Iterator[Batch]:
        recipe, pad = self._recipe, self._model.config.pad_id
        while True:
            epoch, skip = self.progress.epoch, self.progress.batch
            rows = epoch_rows(data, shares, symbols=recipe.symbols, seed=recipe.seed, epoch=epoch)
            made = batches(data, rows, tokens=recipe.batch_tokens, pad=pad, seed=recipe.seed, epoch=epoch)
            for number, batch in enumerate(made):
                if number >= skip:
                    yield batch
            done = self.progress
            self.progress = Progress(done.step, done.tokens, epoch + 1, 0)


def training_copy(model: Seq2Seq, device: torch.device) -> Seq2Seq:
    """The model as it trains: bf16 where that is fast (it is on CPUs with the instructions, and on GPUs)."""
    model.to(device=device, dtype=torch.bfloat16)
    return model
