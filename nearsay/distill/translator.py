"""Bulk greedy translation with CTranslate2, for making training data and for scores. Offline: no latency care."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ctranslate2
from sentencepiece import SentencePieceProcessor

from nearsay.distill.export import Quantization

BATCH = 64
TARGET_TOKENS_MAX = 256


def load_spm(path: Path) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    processor.load(str(path))
    return processor


def pieces_of(processor: SentencePieceProcessor) -> list[str]:
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


class BulkTranslator:
    """folder: a CTranslate2 model. threads: batches at a time, one thread each."""

    def __init__(
        self,
        folder: Path,
        src: SentencePieceProcessor,
        trg: SentencePieceProcessor,
        *,
        precision: Quantization = "int8",
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._src, self._trg = src, trg
        self._engine = ctranslate2.Translator(
            str(folder), device=device, compute_type=precision, inter_threads=threads, intra_threads=1
        )

    def translate(self, sources: Sequence[str]) -> list[str]:
        """One translation a source, in order; beam 1."""
        eos = self._src.id_to_piece(self._src.eos_id())
        pieces = [[*line, eos] for line in self._src.encode(list(sources), out_type=str)]
        results = self._engine.translate_batch(
            pieces, beam_size=1, max_batch_size=BATCH, max_decoding_length=TARGET_TOKENS_MAX
        )
        return [self._trg.decode_pieces(result.hypotheses[0]) for result in results]
