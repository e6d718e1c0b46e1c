"""CTranslate2 students: ids in, ids out, greedy; int8 on the CPU, float16 on CUDA.

Decides: device, precision, length bounds, one eos a source. Must not know: texts, batching policy.
Invariants: neighbours in a batch matter as little as the kernels allow: activations are quantised row by row, sources
shorter and longer than `SHORT_TOKENS` are run apart, the bound on target tokens depends on a text's own length only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import ctranslate2

from nearsay.text.engine import SOURCE_TOKENS_MAX, TARGET_TOKENS_MAX, Device, EngineInfo, LocalInput, LocalOutput
from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.registry import ModelEntry, load_vocabs
from nearsay.text.vocab import EOS_PIECE

BATCH_MAX = 32
# Attention over a batch padded to 16 or more tokens takes other kernels than over fewer, whose sums differ in the last
# bit; rounding to int8 turned that into another word in 10 of 744 sentences. Run apart, all came out bit for bit as
# they do alone, at the same cost (kernels chosen on an AMD CPU; with MKL, the choice on Intel, 11 still differed).
SHORT_TOKENS = 16
CPU_PRECISION, CUDA_PRECISION = "int8", "float16"


def target_tokens_limit(source_tokens: int) -> int:
    """Most target tokens of a source: generous for real text, small enough to stop a loop of repeated words early."""
    return min(TARGET_TOKENS_MAX, 3 * source_tokens + 32)


class Ct2Engine:
    """`LocalEngine` over one `ctranslate2.Translator`."""

    batch_max = BATCH_MAX

    def __init__(self, entry: ModelEntry, *, device: Device = "auto", threads: int = 1) -> None:
        """Raises ModelError (the folder is no model) or EngineUnavailable (`cuda` was asked for and isn't there)."""
        self._source, self._target = load_vocabs(entry)
        self._eos = [] if _adds_eos(entry) else [EOS_PIECE]
        self._translator, why = self._open(entry, device, threads)
        self.info = EngineInfo(
            name="ctranslate2",
            device=self._translator.device,
            precision=self._translator.compute_type.split("_")[0],  # "int8_float32" is int8 weights
            threads=threads,
            model=entry.name,
            why=why,
        )

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        """See `LocalEngine.translate`."""
        assert len(batch) <= self.batch_max
        outputs = [LocalOutput(ids=(), text=None, truncated=bool(item.ids)) for item in batch]
        for group in _alike([len(item.ids) for item in batch]):
            for i, output in zip(group, self._run(self._translator, [batch[i].ids for i in group]), strict=True):
                outputs[i] = output
        return outputs

    def close(self) -> None:
        """See `LocalEngine.close`."""
        self._translator.unload_model()

    def _run(self, translator: ctranslate2.Translator, sources: list[tuple[int, ...]]) -> list[LocalOutput]:
        limits = [target_tokens_limit(len(ids)) for ids in sources]
        results = translator.translate_batch(
            [self._source.pieces(ids) + self._eos for ids in sources],
            beam_size=1,
            max_input_length=0,  # 0 = never cut a source silently
            max_decoding_length=max(limits),
            return_end_token=True,
        )
        return [self._output(result.hypotheses[0], limit) for result, limit in zip(results, limits, strict=True)]

    def _output(self, pieces: list[str], limit: int) -> LocalOutput:
        ended = bool(pieces) and pieces[-1] == EOS_PIECE and len(pieces) <= limit
        kept = pieces[:-1] if ended else pieces[:limit]
        return LocalOutput(ids=tuple(self._target.ids(kept)), text=None, truncated=not ended)

    def _open(self, entry: ModelEntry, device: Device, threads: int) -> tuple[ctranslate2.Translator, str]:
        gpus = ctranslate2.get_cuda_device_count()
        if device == "cuda" and not gpus:
            raise EngineUnavailable("ctranslate2", "there is no CUDA device", extra="edge-gpu")
        if device == "cpu" or not gpus:
            why = "the CPU was asked for" if device == "cpu" else "there is no CUDA device, so the CPU"
            return self._load(entry, "cpu", CPU_PRECISION, threads), f"{why}; int8 is the fastest precision there"
        try:
            translator = self._load(entry, "cuda", CUDA_PRECISION, threads)
        except EngineUnavailable as error:
            if device == "cuda":
                raise
            return self._load(entry, "cpu", CPU_PRECISION, threads), f"a CUDA device is there, but {error.reason}"
        return translator, "a CUDA device is there; float16 is the fastest precision there"

    def _load(self, entry: ModelEntry, device: str, precision: str, threads: int) -> ctranslate2.Translator:
        """Load, then run one token: CUDA libraries are only looked for, and buffers only made, by a first run."""
        try:
            translator = ctranslate2.Translator(
                str(entry.path), device=device, compute_type=precision, inter_threads=1, intra_threads=threads
            )
        except (RuntimeError, ValueError) as error:
            if device == "cuda":
                raise EngineUnavailable("ctranslate2", f"CUDA doesn't work: {error}", extra="edge-gpu") from error
            raise ModelError(entry.path, f"ctranslate2 refuses it: {error}") from error
        try:
            self._run(translator, [(self._source.unk_id,)])
        except RuntimeError as error:
            raise EngineUnavailable("ctranslate2", f"{device} doesn't work: {error}", extra="edge-gpu") from error
        return translator


def _alike(lengths: list[int]) -> list[list[int]]:
    """Indices of the sources to run, in groups whose members don't change each other's result. Counted without eos."""
    runnable = [i for i, length in enumerate(lengths) if 0 < length <= SOURCE_TOKENS_MAX]
    short = [i for i in runnable if lengths[i] + 1 < SHORT_TOKENS]
    long = [i for i in runnable if lengths[i] + 1 >= SHORT_TOKENS]
    return [group for group in (short, long) if group]


def _adds_eos(entry: ModelEntry) -> bool:
    """Whether CTranslate2 closes sources itself for this model; otherwise we do: exactly one eos either way."""
    try:
        config = json.loads((entry.path / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(entry.path / "config.json", f"can't be read: {error}") from error
    return bool(config.get("add_source_eos", False))
