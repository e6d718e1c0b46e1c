"""The engine that drives `nearsay.nmt` models in torch.

Several models may be resident; each has a runner with slots of its own, and a step runs them one after another. After
`load` nothing of size is allocated any more: caches are static, and the widest passes have been run once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import torch

from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights import load_model
from nearsay.runtime.clock import Clock
from nearsay.text.entry import ModelEntry
from origin.core.model import ServedModel
from origin.core.plan import Batch, Encode, Plan, Result, Row
from origin.engine.encoder_cache import EncoderCache
from origin.engine.model_runner import ModelRunner

Device = Literal["auto", "cpu", "cuda"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
Loader = Callable[[ModelEntry, str, torch.dtype], Seq2Seq]

WARM_UP_SHAPES = ((1, 8), (8, 32), (1, 256))  # sources, tokens of each; then a step of every slot


class TorchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """device "auto": cuda when there is one. dtype "auto": float32 on a CPU, float16 on a GPU.

    encoder_cache_bytes, encoder_cache_host_bytes: encoder output kept on the device, and beside a GPU in the host's
    memory, all models together.
    """

    device: Device = "auto"
    dtype: DType = "auto"
    threads: int = 1
    slots: int = 64
    beam_max: int = 8
    encoder_cache_bytes: int = 64 << 20
    encoder_cache_host_bytes: int = 256 << 20


def load_entry(entry: ModelEntry, device: str, dtype: torch.dtype) -> Seq2Seq:
    """The model of a registry entry, with the entry's decoder prefix if it names one."""
    model = load_model(entry.path, device=device, dtype=dtype)
    if entry.prefix_ids:
        model.config = msgspec.structs.replace(model.config, prefix_ids=entry.prefix_ids)
    return model


class TorchEngine:
    """`load` must be called on the thread that calls `run`: torch keeps its thread count per calling thread."""

    def __init__(
        self, entries: Sequence[ModelEntry], options: TorchOptions, *, clock: Clock, loader: Loader = load_entry
    ) -> None:
        self._entries = tuple(entries)
        self._options = options
        self._clock = clock
        self._loader = loader
        cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
        self._device = "cuda" if cuda else "cpu"
        name = {"auto": "float16" if cuda else "float32"}.get(options.dtype, options.dtype)
        self._dtype: torch.dtype = getattr(torch, name)
        self._runners: dict[str, ModelRunner] = {}
        self._encoder_cache = EncoderCache(self._device, options.encoder_cache_bytes, options.encoder_cache_host_bytes)

    def info(self) -> str:
        return f"torch {str(self._dtype).removeprefix('torch.')} {self._device}"

    def load(self) -> tuple[ServedModel, ...]:
        torch.set_num_threads(self._options.threads)
        served = tuple(self._load(entry) for entry in self._entries)
        return tuple(self._warm_up(model) for model in served)

    def close(self) -> None:
        self._runners.clear()

    @torch.inference_mode()
    def run(self, plan: Plan) -> Result:
        for sequence in plan.dropped:
            for runner in self._runners.values():
                runner.forget(sequence)
        results = [self._runners[batch.model].run(batch) for batch in plan.batches]
        return Result(
            tuple(outcome for result in results for outcome in result.outcomes),
            encoded=sum(result.encoded for result in results),
            reused=sum(result.reused for result in results),
        )

    @torch.inference_mode()
    def _load(self, entry: ModelEntry) -> ServedModel:
        model = self._loader(entry, self._device, self._dtype).eval()
        self._runners[entry.name] = ModelRunner(
            entry.name, model, self._options.slots, self._encoder_cache, self._clock
        )
        config = model.config
        return ServedModel(
            info=entry.info(self.info()),
            src_vocab_size=config.src_vocab_size,
            trg_vocab_size=config.trg_vocab_size,
            eos_id=config.eos_id,
            prefix_ids=config.prefix_ids,
            slots=self._options.slots,
            beam=min(entry.beam, self._options.beam_max),
            beam_max=self._options.beam_max,
            source_tokens_max=config.source_tokens_max,
            target_tokens_max=config.target_tokens_max - len(config.prefix_ids),
        )

    def _warm_up(self, model: ServedModel) -> ServedModel:
        """Run the shapes whose first time is slow: allocator, kernels, thread pool. Sequence numbers are negative, so
        they meet no real one; everything is dropped again. Returns the model with what was measured."""
        for count, length in [*WARM_UP_SHAPES, (model.slots, 16)]:
            length = min(length, model.source_tokens_max)
            source = (*[model.eos_id + 1] * (length - 1), model.eos_id)
            owned = [tuple(range(at, at + model.beam)) for at in range(0, model.slots - model.beam + 1, model.beam)]
            rows = tuple(Row(-1 - number, slots) for number, slots in enumerate(owned[:count]))
            encode = tuple(Encode(row.sequence, row.slots, source, model.target_tokens_max) for row in rows)
            result = self.run(Plan((Batch(model.name, encode, rows),)))
            going = {outcome.sequence for outcome in result.outcomes if outcome.finish is None}
            self.run(Plan((Batch(model.name, (), tuple(row for row in rows if row.sequence in going)),)))
            self.run(Plan(dropped=tuple(row.sequence for row in rows)))
        runner = self._runners[model.name]
        runner.measure()
        return msgspec.structs.replace(model, pass_tokens=runner.pass_tokens)
