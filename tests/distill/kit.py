"""Small worlds for the tests of distill: a toy language pair, its vocabularies, networks of a few thousand weights."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nearsay.distill.corpus import EVALUATION, MIX, Pair
from nearsay.distill.symbols import SYMBOLS, symbol
from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import Seq2Seq

NOUNS = {"cat": "Katze", "dog": "Hund", "tree": "Baum", "house": "Haus", "road": "Weg", "lamp": "Lampe"}
VERBS = {"sees": "sieht", "likes": "mag", "finds": "findet", "paints": "malt"}


def toy_pairs(count: int, seed: int = 0) -> list[Pair]:
    """English-like and German-like sentences of one grammar, some with names and numbers on both sides."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for _ in range(count):
        one, verb, two = rng.choice(list(NOUNS)), rng.choice(list(VERBS)), rng.choice(list(NOUNS))
        tail = rng.choice(("", " in Oslo", f" {rng.randrange(100)}"))
        pairs.append((f"the {one} {verb} the {two}{tail}.", f"{NOUNS[one]} {VERBS[verb]} {NOUNS[two]}{tail}."))
    return pairs


def toy_vocab(folder: Path, name: str, side: int, vocab_size: int = 120) -> SentencePieceProcessor:
    """side: 0 English, 1 German. Ids: </s> 0, <unk> 1, pad 2, 3-34 the reserved symbols."""
    text = [pair[side] for pair in toy_pairs(300, seed=5)]
    SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_prefix=str(folder / name.removesuffix(".spm")),
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        eos_id=0,
        unk_id=1,
        pad_id=2,
        bos_id=-1,
        user_defined_symbols=[symbol(k) for k in range(SYMBOLS)],
        num_threads=1,
        minloglevel=2,
    )
    (folder / name.replace(".spm", ".model")).rename(folder / name)
    processor = SentencePieceProcessor()
    processor.load(str(folder / name))
    return processor


def toy_config(src: int = 90, trg: int = 80, **changes: int) -> ModelConfig:
    shape = dict(d_model=32, heads=4, encoder_layers=2, decoder_layers=2, encoder_ffn=64, decoder_ffn=64)
    return ModelConfig(
        **(shape | changes),
        src_vocab_size=src,
        trg_vocab_size=trg,
        encoder_norm="post",
        decoder_norm="pre",
        encoder_norm_eps=1e-6,
        decoder_norm_eps=1e-6,
        pad_id=2,
    )


def toy_network(config: ModelConfig, seed: int = 0) -> Seq2Seq:
    torch.manual_seed(seed)
    model = Seq2Seq(config).eval()
    with torch.no_grad():
        for table in (model.src_embedding.weight, model.trg_embedding.weight):
            table.mul_(config.d_model**-0.5)
    return model


def toy_corpora(folder: Path, train: int = 240, held_out: int = 12) -> Path:
    """A corpora folder with every file that the mix and the evaluation sets name."""
    for number, corpus in enumerate(MIX):
        _write(corpus.path(folder, "de"), toy_pairs(train if number == 0 else 6, seed=number))
    for number, name in enumerate(EVALUATION.values()):
        _write(folder / name.format(target="de"), toy_pairs(held_out, seed=900 + number))
    return folder


def _write(path: Path, pairs: list[Pair]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)
