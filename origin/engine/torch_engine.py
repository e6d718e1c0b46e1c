"""The engine that drives `nearsay.nmt` models in torch.

Several models may be resident; each has a runner with slots of its own, and a step runs them one after another. Once a
model is prepared nothing of size is allocated any more: caches are static, and the widest passes have been run once.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec
import torch

from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights import WeightsError, load_model, read_config
from nearsay.runtime.clock import Clock
from nearsay.text.entry import ModelEntry
from origin.core.model import ServedModel
from origin.core.plan import Batch, Encode, Plan, Result, Row
from origin.engine.base import NotFinite, Prepared
from origin.engine.encoder_cache import EncoderCache
from origin.engine.footprint import CUDA_SHARE, footprint_bytes
from origin.engine.model_runner import ModelRunner
from origin.engine.survive import out_of_memory
from origin.memory import HOST_SHARE, host_bytes

Device = Literal["auto", "cpu", "cuda"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
Loader = Callable[[ModelEntry, str, torch.dtype], Seq2Seq]

WARM_UP_SHAPES = ((1, 8), (8, 32), (1, 256))  # sources, tokens of each; then a step of every slot


class TorchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """device "auto": cuda when there is one. dtype "auto": float32 on a CPU, float16 on a GPU.

    encoder_cache_bytes, encoder_cache_host_bytes: encoder output kept on the device, and beside a GPU in the host's
    memory, all models together. memory_bytes_max: of models and encoder output on the device; 0 = a share of what the
    device, or this process's control group, has.
    """

    device: Device = "auto"
    dtype: DType = "auto"
    threads: int = 1
    slots: int = 64
    beam_max: int = 8
    encoder_cache_bytes: int = 64 << 20
    encoder_cache_host_bytes: int = 256 << 20
    memory_bytes_max: int = 0


class TorchPrepared(NamedTuple):
    """See `Prepared`."""

    entry: ModelEntry
    model: ServedModel
    runner: ModelRunner


def load_entry(entry: ModelEntry, device: str, dtype: torch.dtype) -> Seq2Seq:
    """The model of a registry entry, with the entry's decoder prefix if it names one."""
    model = load_model(entry.path, device=device, dtype=dtype)
    if entry.prefix_ids:
        model.config = msgspec.structs.replace(model.config, prefix_ids=entry.prefix_ids)
    return model


class TorchEngine:
    """Torch keeps its thread count per calling thread: `load` and `prepare` set it on the thread that calls them."""

    def __init__(
        self, entries: Sequence[ModelEntry], options: TorchOptions, *, clock: Clock, loader: Loader = load_entry
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._options = options
        self._clock = clock
        self._loader = loader
        cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
        self._device = "cuda" if cuda else "cpu"
        name = {"auto": "float16" if cuda else "float32"}.get(options.dtype, options.dtype)
        self._dtype: torch.dtype = getattr(torch, name)
        self._runners: dict[str, ModelRunner] = {}
        self._models: dict[str, ServedModel] = {}
        self._encoder_cache = self._new_encoder_cache()
        self._no_cache = EncoderCache(self._device, 0)

    def info(self) -> str:
        return f"torch {str(self._dtype).removeprefix('torch.')} {self._device}"

    @property
    def memory_bytes_max(self) -> int:
        total = self._options.memory_bytes_max
        if not total and self._device == "cuda":
            total = int(CUDA_SHARE * torch.cuda.mem_get_info()[1])
        return (total or int(HOST_SHARE * host_bytes())) - self._options.encoder_cache_bytes

    def footprint(self, entry: ModelEntry) -> int:
        return footprint_bytes(read_config(entry.path), self._options.slots, self._dtype, self._device)

    # ---- models come and go ------------------------------------------------------------------------------------------

    def load(self) -> tuple[ServedModel, ...]:
        torch.set_num_threads(self._options.threads)
        for entry in self._entries.values():
            entry.verify()  # when it is started anew, other files may lie there by now
        prepared = [self.prepare(entry) for entry in self._entries.values()]
        for each in prepared:
            self.adopt(each)
        return tuple(each.model for each in prepared)

    def prepare(self, entry: ModelEntry) -> TorchPrepared:
        torch.set_num_threads(self._options.threads)
        try:
            return self._prepare(entry)
        except Exception as error:
            if out_of_memory(error):
                raise MemoryError(str(error)) from error
            raise

    def adopt(self, prepared: Prepared) -> None:
        assert isinstance(prepared, TorchPrepared)
        name = prepared.model.name
        prepared.runner.share(self._encoder_cache)
        self._entries[name], self._models[name] = prepared.entry, prepared.model
        self._runners[name] = prepared.runner

    def release(self, model: str) -> None:
        del self._entries[model], self._models[model]
        self._encoder_cache.forget(model)
        gone = [self._runners.pop(model)]
        threading.Thread(target=_free, args=(gone, self._device), name=f"free {model}", daemon=True).start()

    def close(self) -> None:
        self._runners.clear()
        self._encoder_cache = self._new_encoder_cache()

    # ---- steps -------------------------------------------------------------------------------------------------------

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
            cut=sum(result.cut for result in results),
        )

    @torch.inference_mode()
    def keep_warm(self) -> None:
        for name, runner in self._runners.items():
            runner.share(self._no_cache)  # or the encoder would only be run once
            try_out(runner, self._models[name], 1, 2)
            runner.share(self._encoder_cache)

    # ---- one model ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _prepare(self, entry: ModelEntry) -> TorchPrepared:
        network = self._loader(entry, self._device, self._dtype).eval()
        if broken := [name for name, weight in network.named_parameters() if bool(weight.isnan().any())]:
            raise NotFinite(f"{entry.name}: {broken[0]} holds what is no number")
        runner = ModelRunner(entry.name, network, self._options.slots, self._no_cache, self._clock)
        config = network.config
        model = ServedModel(
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
        for count, length in [*WARM_UP_SHAPES, (model.slots, 16)]:
            try_out(runner, model, count, length)
        runner.measure()
        return TorchPrepared(entry, msgspec.structs.replace(model, pass_tokens=runner.pass_tokens), runner)

    def _new_encoder_cache(self) -> EncoderCache:
        options = self._options
        return EncoderCache(self._device, options.encoder_cache_bytes, options.encoder_cache_host_bytes)


def _free(gone: list[ModelRunner], device: str) -> None:
    """Give memory back, on a thread of its own: half a GiB takes the kernel 0.1 s, which no step should wait for."""
    gone.clear()
    if device == "cuda":
        torch.cuda.empty_cache()
    else:
        with suppress(OSError, AttributeError):  # glibc keeps what was freed; musl has no such call
            ctypes.CDLL(None).malloc_trim(0)


def try_out(runner: ModelRunner, model: ServedModel, count: int, length: int) -> None:
    """Run `count` sources of `length` tokens, then a step of those that go on: allocator, kernels, thread pool are slow
    at first. Sequence numbers are negative, so they meet no real one; everything is dropped again.

    Only while nothing runs. Raises NotFinite, MemoryError, WeightsError.
    """
    length = min(length, model.source_tokens_max)
    source = (*[model.eos_id + 1] * (length - 1), model.eos_id)
    owned = [tuple(range(at, at + model.beam)) for at in range(0, model.slots - model.beam + 1, model.beam)]
    rows = tuple(Row(-1 - number, slots) for number, slots in enumerate(owned[:count]))
    encode = tuple(Encode(row.sequence, row.slots, source, model.target_tokens_max) for row in rows)
    try:
        first = runner.run(Batch(model.name, encode, rows)).outcomes
        going = {outcome.sequence for outcome in first if outcome.finish is None}
        second = runner.run(Batch(model.name, (), tuple(row for row in rows if row.sequence in going))).outcomes
    finally:
        for row in rows:
            runner.forget(row.sequence)
    for outcome in (*first, *second):
        if outcome.finish == "failed":
            if outcome.fault == "memory":
                raise MemoryError(f"{model.name}: a pass over one source does not fit")
            if outcome.fault == "engine":
                raise WeightsError(f"{model.name}: a first pass over {count} sources broke")
            raise NotFinite(f"{model.name}: its logits are no numbers")
