"""Firefox Translations students through `fxtranslate`: text in, text out, int8 on the CPU, greedy.

Decides: what is run and what is refused for length. Must not know: ids (the engine keeps its own).
Invariants: one thread an instance (the native object aborts with a BaseException elsewhere, so we check first);
a source over `SOURCE_TOKENS_MAX` is never run, because its time grows with the square of its length.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import fxtranslate

from nearsay.text.engine import Device, EngineInfo, LocalInput, LocalOutput
from nearsay.text.errors import EngineUnavailable, ModelError, WrongThread
from nearsay.text.registry import ModelEntry
from nearsay.text.vocab import Vocab

# fxtranslate stops at 256 target tokens without saying so. It shows no ids, so the answer's length is measured by
# encoding it again, which can give fewer tokens than the model wrote: 256 were seen to become 234. The margin errs
# towards `truncated`, which costs a second run of halves, not a lost sentence. An estimate all the same.
TRUNCATED_TOKENS_MIN = 224


class FxEngine:
    """`LocalEngine` over one native translator. `batch_max` is 1: the engine runs one text after another."""

    batch_max = 1

    def __init__(self, entry: ModelEntry, *, device: Device = "auto") -> None:
        if device == "cuda":
            raise EngineUnavailable("fxtranslate", "runs on the CPU only")
        self._thread = threading.get_ident()
        self._target = Vocab.load(entry.trg_vocab)
        self._native: fxtranslate.Translator | None = _open(entry)
        self.info = EngineInfo(
            name="fxtranslate",
            device="cpu",
            precision="int8",
            threads=1,
            model=entry.name,
            why=f"a Firefox Translations model; its native engine runs on the CPU ({self._native.backend()} kernels)",
        )
        self.translate([LocalInput(text="a", ids=(self._target.unk_id,))])

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        """See `LocalEngine.translate`."""
        if threading.get_ident() != self._thread:
            raise WrongThread("fxtranslate")
        assert self._native is not None, "closed"
        assert len(batch) <= self.batch_max
        return [self._one(self._native, item) for item in batch]

    def close(self) -> None:
        """See `LocalEngine.close`. From another thread the native object is left for its own thread to free."""
        if threading.get_ident() == self._thread:
            self._native = None

    def _one(self, native: fxtranslate.Translator, item: LocalInput) -> LocalOutput:
        if len(item.ids) > self.info.source_tokens_max:
            return LocalOutput(ids=(), text="", truncated=True)
        text = native.translate(item.text)
        return LocalOutput(ids=(), text=text, truncated=self._is_truncated(text))

    def _is_truncated(self, text: str) -> bool:
        if len(text) < TRUNCATED_TOKENS_MIN:  # a token stands for at least one character
            return False
        return len(self._target.encode(text)) >= TRUNCATED_TOKENS_MIN


def _open(entry: ModelEntry) -> fxtranslate.Translator:
    try:
        model, source = entry.path.read_bytes(), entry.src_vocab.read_bytes()
        target = source if entry.trg_vocab == entry.src_vocab else entry.trg_vocab.read_bytes()
        shortlist = None if entry.shortlist is None else entry.shortlist.read_bytes()
        return fxtranslate.Translator(model, source, target, shortlist)
    except OSError as error:
        raise ModelError(entry.path, f"can't be read: {error}") from error
    except ValueError as error:
        raise ModelError(entry.path, f"fxtranslate refuses it: {error}") from error
