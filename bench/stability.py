"""Case stability: what biased decoding and held-back words do to a translation that grows with its source.

Real sentences, typed word by word into a session, as an edge asks for them: growing ones lean on the last answer with
one of several strengths, finished ones are decoded plainly. Measured: normalised erasure (words taken back per final
word), lag (source words), BLEU of the final texts, and of the intermediate ones against as much of the reference as
there was of the source. Also drawn: results/stability.svg. None of it depends on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import sacrebleu

from bench.curve import svg
from bench.erasure import erasure, held_back, lag
from bench.one_origin import SOURCE, TARGET, Origin, growing
from bench.report import RESULTS, Measure, Note, write_result
from bench.sentences import dev_pairs, one_sentence
from edge_worker.core.segment_limits import SegmentLimits
from edge_worker.core.segmenter import segment
from nearsay.text.registry import Registry

DEFAULT = SegmentLimits().session_bias
BIASES = (0.0, 0.1, DEFAULT, 0.3, 0.5)
ALWAYS = (0.1, DEFAULT)  # finished sentences lean, too: what that would cost
MASKS = (0, 1, 2, 3)
WORDS_MIN, WORDS_MAX = 6, 40


class Point(msgspec.Struct, frozen=True):
    """erasure: words taken back per final word. lag: source words. passes: over plain greedy's steps, without edge."""

    erasure: float
    lag: float
    final_bleu: float
    intermediate_bleu: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/; this case needs references")
    parser.add_argument("--models", type=Path, action="append", help="look for models here first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stability-sentences", type=int, default=200)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    if options.corpora is None:
        raise SystemExit("case stability needs references: --corpora")
    origin = Origin(Registry.discover(options.models), options.threads)
    found = dev_pairs(options.corpora, "tatoeba", f"{SOURCE}-{TARGET}")
    pairs = [pair for pair in found if one_sentence(pair[0], WORDS_MIN, WORDS_MAX)][: options.stability_sentences]
    curves = {f"{bias:g}": _typed(origin, pairs, bias) for bias in BIASES}
    always = {f"{bias:g} always": _typed(origin, pairs, bias, always=True) for bias in ALWAYS}
    points = {
        (name, mask): _point(shown, [reference for _, reference in pairs], mask)
        for name, shown in (curves | always).items()
        for mask in MASKS
    }
    (RESULTS / "stability.svg").write_text(_drawn({key: point for key, point in points.items() if key[0] in curves}))
    return write_result("stability", _measures(points), _notes(points, len(pairs)))


def _typed(
    origin: Origin, pairs: Sequence[tuple[str, str]], bias: float, *, always: bool = False
) -> list[list[list[str]]]:
    """For each sentence, the words of its translation after each word typed."""
    typed: list[list[list[str]]] = []
    for number, (text, _) in enumerate(pairs):
        session = f"{bias} {always} {number}"
        typed.append([])
        for prefix in growing(text):
            leans = always or segment(prefix, SOURCE).segments[-1].growing
            answer = origin.translate(prefix, session=session, bias=bias if leans else 0.0)
            typed[-1].append(origin.target.decode(answer.ending.ids).split())
    return typed


def _point(typed: Sequence[Sequence[Sequence[str]]], references: Sequence[str], mask: int) -> Point:
    erased = late = 0.0
    finals: list[str] = []
    partial: list[str] = []
    partial_references: list[str] = []
    for states, reference in zip(typed, references, strict=True):
        shown = [*(held_back(words, mask) for words in states[:-1]), states[-1]]
        erased += erasure(shown) / max(len(shown[-1]), 1)
        late += lag(shown)
        finals.append(" ".join(shown[-1]))
        words = reference.split()
        for event, state in enumerate(shown, start=1):
            partial.append(" ".join(state))
            partial_references.append(" ".join(words[: round(len(words) * event / len(shown))]))
    return Point(
        erasure=erased / len(typed),
        lag=late / len(typed),
        final_bleu=_bleu(finals, references),
        intermediate_bleu=_bleu(partial, partial_references),
    )


def _bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    return float(sacrebleu.corpus_bleu(texts, [references]).score)


def _measures(points: Mapping[tuple[str, int], Point]) -> list[Measure]:
    """The default's, over those without a bias."""
    plain, default, calm = points["0", 0], points[f"{DEFAULT:g}", 0], points[f"{DEFAULT:g}", 2]
    return [
        Measure("default_erasure_over_plain", default.erasure / plain.erasure, "", 0.85, 0.7, "lower"),
        Measure(
            "default_with_2_words_held_back_erasure_over_plain", calm.erasure / plain.erasure, "", 0.4, 0.3, "lower"
        ),
        Measure("default_final_bleu_lost", plain.final_bleu - default.final_bleu, "BLEU", 0.3, 0.0, "lower"),
        Measure(
            "default_intermediate_bleu_lost",
            plain.intermediate_bleu - default.intermediate_bleu,
            "BLEU",
            1.5,
            0.5,
            "lower",
        ),
    ]


def _notes(points: Mapping[tuple[str, int], Point], sentences: int) -> dict[str, Note]:
    notes: dict[str, Note] = {"sentences": sentences, "default_bias": DEFAULT}
    for (name, mask), point in points.items():
        bleu = f"BLEU {point.final_bleu:.2f} final, {point.intermediate_bleu:.2f} intermediate"
        notes[f"bias {name}, mask {mask}"] = f"erasure {point.erasure:.3f}, lag {point.lag:.2f} words, {bleu}"
    return notes


def _drawn(points: Mapping[tuple[str, int], Point]) -> str:
    """Each mask a curve, each bias a point on it."""
    quality, late = ({f"mask {mask}": list[tuple[float, float, str]]() for mask in MASKS} for _ in range(2))
    for (name, mask), point in points.items():
        quality[f"mask {mask}"].append((point.erasure, point.intermediate_bleu, name))
        late[f"mask {mask}"].append((point.erasure, point.lag, name))
    x_name = "normalised erasure (labels: bias)"
    return svg([("intermediate BLEU", x_name, "BLEU", quality), ("lag", x_name, "source words", late)])
