"""Counts and tests that a vocabulary plan is made from: piece uses in the corpora, and which words are copied."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nearsay.distill.corpus import read_pairs
from nearsay.distill.translator import load_spm, pieces_of
from nearsay.distill.vocab_plan import FREE_ROWS, LOOK_ALIKES, SPACE, VocabPlan, copied_words, plan_vocab
from nearsay.nmt.decoding import greedy
from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights.load import load_model

NAME = re.compile(r"[A-Z][a-z]{4,}")
COMMON = 12_000  # ids below are the most frequent pieces, both languages' plain words
BATCH = 64


def make_plan(model: Path, borrowed: Path, corpora: Path, other: str) -> VocabPlan:
    """A plan for the vocabulary file `borrowed` of the Marian model file, from all of the corpora's English."""
    processor = load_spm(borrowed)
    pieces = pieces_of(processor)
    english, foreign = count_uses(processor, corpora, other)
    words = {
        i: piece[1:]
        for i, piece in enumerate(pieces)
        if i >= COMMON and not english[i] and piece[0] == SPACE and NAME.fullmatch(piece[1:])
        if processor.encode(piece[1:]) == [i]
    }
    network = load_model(model)
    copied = copied_words(words, lambda sentences: _translate(network, processor, sentences))
    missing = [char for char in (*LOOK_ALIKES, *FREE_ROWS) if processor.unk_id() in processor.encode("a" + char)]
    return plan_vocab(pieces, english, foreign, network.src_embedding.weight, copied, missing)


def count_uses(processor: SentencePieceProcessor, corpora: Path, other: str) -> tuple[Counter[int], Counter[int]]:
    """Uses of each id in all English sides, and in the sides of the other language."""
    english, foreign = Counter[int](), Counter[int]()
    for file in sorted(corpora.glob("*/*.en-*.tsv.gz")):
        pairs = list(read_pairs(file))
        _count(processor, english, (source for source, _ in pairs))
        if f".en-{other}." in file.name:
            _count(processor, foreign, (target for _, target in pairs))
    return english, foreign


def _count(processor: SentencePieceProcessor, uses: Counter[int], texts: Iterable[str]) -> None:
    for ids in processor.encode(list(texts)):
        uses.update(ids)


def _translate(network: Seq2Seq, processor: SentencePieceProcessor, sentences: Sequence[str]) -> list[str]:
    eos = network.config.eos_id
    rows = [[*ids, eos] for ids in processor.encode(list(sentences))]
    made = (ids for at in range(0, len(rows), BATCH) for ids in greedy(network, rows[at : at + BATCH]))
    return [processor.decode([i for i in ids if i != eos]) for ids in made]
