"""Case draft_verify: decoder passes that drafts save, on real sentences, one at a time, with the real engine.

Drafts of the edge's own student, and what a session adds to them while a sentence is typed word by word. The yardstick
is the same engine without drafts, whose passes are plain greedy's steps: every drafted answer must have its ids.
A session's growing sentence leans on its last answer (edge_worker/core/stability.py); that changes ids, so there the
yardstick leans, too. Passes don't depend on the machine; times do, and are notes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.one_origin import SOURCE, TARGET, Origin, Student, growing
from bench.report import Measure, Note, write_result
from bench.sentences import dev_pairs, one_sentence, sentences
from edge_worker.core.segment_limits import SegmentLimits
from edge_worker.core.segmenter import segment
from nearsay.text.registry import Registry

DRAFTED_FLOOR, DRAFTED_TARGET = 0.55, 0.4
CAPTIONS_FLOOR, CAPTIONS_TARGET = 0.5, 0.3
WORDS_MIN, WORDS_MAX = 6, 40
BIAS = SegmentLimits().session_bias


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/ and docs/; without it our own sentences")
    parser.add_argument("--models", type=Path, action="append", help="look for models here first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--draft-sentences", type=int, default=1000)
    parser.add_argument("--caption-sentences", type=int, default=60)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    registry = Registry.discover(options.models)
    origin, student = Origin(registry, options.threads), Student(registry, options.threads)
    texts, source = sentences(options.corpora, f"{SOURCE}-{TARGET}", options.draft_sentences)
    texts = list(dict.fromkeys(texts))
    passes, notes = _drafted(origin, student, texts)
    captions = _captions(origin, student, texts, options.caption_sentences)
    measures = [
        Measure("drafted_passes_over_greedy", passes, "", DRAFTED_FLOOR, DRAFTED_TARGET, "lower"),
        *captions.measures(""),
    ]
    notes |= captions.notes("captions")
    if options.corpora is not None:
        docs = [pair[0] for pair in dev_pairs(options.corpora, "docs", f"{SOURCE}-{TARGET}")]
        longer = _captions(origin, student, docs, options.caption_sentences // 2)
        measures += longer.measures("docs_")
        notes |= longer.notes("docs_captions")
    student.close()
    return write_result("draft_verify", measures, {"sentences": source, "threads": options.threads, **notes})


def _drafted(origin: Origin, student: Student, texts: Sequence[str]) -> tuple[float, dict[str, Note]]:
    steps = passes = fed = differing = 0
    plain_s = drafted_s = draft_s = 0.0
    for text in texts:
        began = time.perf_counter()
        draft = student.ids(text, origin.vocab.encode(text))
        draft_s += time.perf_counter() - began
        plain, drafted = origin.translate(text), origin.translate(text, draft)
        steps += plain.ending.steps
        passes += drafted.ending.steps
        fed += drafted.ending.steps + drafted.ending.draft_tokens
        differing += plain.ending.ids != drafted.ending.ids
        plain_s += plain.seconds
        drafted_s += drafted.seconds
    return passes / steps, {
        "drafted_sentences": len(texts),
        "drafted_differing": differing,
        "drafted_fed_over_greedy": round(fed / steps, 3),
        "encode_and_decode_plain_over_drafted": round(plain_s / drafted_s, 3),
        "encode_and_decode_plain_over_drafted_and_draft": round(plain_s / (drafted_s + draft_s), 3),
    }


class Way(msgspec.Struct):
    """One way of translating captions, beside its yardstick. fed: ids read; differing: answers with other ids."""

    steps: int = 0
    passes: int = 0
    fed: int = 0
    differing: int = 0
    yardstick_s: float = 0.0
    seconds: float = 0.0


class Captions(msgspec.Struct):
    """plain: exactly plain greedy's ids. leaning: as a session is served. alone: plain, and without the student."""

    plain: Way
    leaning: Way
    alone: Way
    sentences: int = 0
    requests: int = 0

    def measures(self, prefix: str) -> list[Measure]:
        """The product's way, and the one whose ids are plain greedy's."""
        ways = {"captions_passes_over_scratch": self.leaning, "captions_plain_passes_over_scratch": self.plain}
        return [
            Measure(prefix + name, way.passes / way.steps, "", CAPTIONS_FLOOR, CAPTIONS_TARGET, "lower")
            for name, way in ways.items()
        ]

    def notes(self, prefix: str) -> dict[str, Note]:
        """Counts and times."""
        found: dict[str, Note] = {f"{prefix}_sentences": self.sentences, f"{prefix}_requests": self.requests}
        for name, way in (("leaning", self.leaning), ("plain", self.plain), ("alone", self.alone)):
            found[f"{prefix}_{name}_passes_over_scratch"] = round(way.passes / way.steps, 4)
            found[f"{prefix}_{name}_fed_over_scratch"] = round(way.fed / way.steps, 3)
            found[f"{prefix}_{name}_differing"] = way.differing
            found[f"{prefix}_{name}_encode_and_decode_scratch_over_ours"] = round(way.yardstick_s / way.seconds, 3)
        return found


def _captions(origin: Origin, student: Student, texts: Sequence[str], count: int) -> Captions:
    found = Captions(Way(), Way(), Way())
    for text in [text for text in texts if one_sentence(text, WORDS_MIN, WORDS_MAX)][:count]:
        found.sentences += 1
        for prefix in growing(text):
            draft = student.ids(prefix, origin.vocab.encode(prefix))
            bias = BIAS if segment(prefix, SOURCE).segments[-1].growing else 0.0
            number = f"{id(texts)} {found.sentences}"
            _count(origin, found.plain, prefix, draft, f"plain {number}")
            _count(origin, found.leaning, prefix, draft, f"leaning {number}", bias)
            _count(origin, found.alone, prefix, (), f"alone {number}")
            found.requests += 1
    return found


def _count(origin: Origin, way: Way, text: str, draft: Sequence[int], session: str, bias: float = 0.0) -> None:
    scratch = origin.translate(text, session=session, bias=bias, drafts=False)
    ours = origin.translate(text, draft, session=session, bias=bias)
    way.steps += scratch.ending.steps
    way.passes += ours.ending.steps
    way.fed += ours.ending.steps + ours.ending.draft_tokens
    way.differing += scratch.ending.ids != ours.ending.ids
    way.yardstick_s += scratch.seconds
    way.seconds += ours.seconds
