"""Case draft_verify: decoder passes that drafts save, on real sentences, one at a time, with the real engine.

Two sources of drafts: the edge's own student translates the sentence first; and a session's previous answer, while a
sentence is typed word by word. The yardstick is the same engine without drafts, whose passes are plain greedy's steps.
Every drafted answer must have the plain one's ids. Passes don't depend on the machine; times do, and are notes.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.report import Measure, Note, write_result
from bench.sentences import sentences
from nearsay.text.engine import LocalEngine, LocalInput, open_engine
from nearsay.text.registry import Registry
from nearsay.text.vocab import Vocab
from nearsay.wire.messages import ModelInfo, Submit, pack_ids
from origin.core.plan import Ended
from origin.core.scheduler import Limits, Scheduler
from origin.core.sequence import Ending
from origin.core.sessions import SessionLimits, Sessions
from origin.door import Door, question_of
from origin.engine.torch_engine import TorchEngine, TorchOptions

SOURCE, TARGET = "en", "de"  # drafts of en-pt come from the same weights: they would flatter
DRAFTED_FLOOR, DRAFTED_TARGET = 0.55, 0.4
CAPTIONS_FLOOR, CAPTIONS_TARGET = 0.5, 0.3
WORDS_MIN = 6
ENDS_WITHIN = re.compile(r"[.?!].*\w")  # several sentences are several segments
FOREVER_MS = 1e9


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=Path, help="folder with tatoeba/; without it our own sentences")
    parser.add_argument("--models", type=Path, action="append", help="look for models here first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--draft-sentences", type=int, default=1000)
    parser.add_argument("--caption-sentences", type=int, default=60)


class Answer(msgspec.Struct, frozen=True):
    """ending, and seconds from the request to it."""

    ending: Ending
    seconds: float


class Origin:
    """Door, sessions, scheduler and engine of an origin, without links and threads."""

    def __init__(self, registry: Registry, threads: int) -> None:
        entry = registry.find(SOURCE, TARGET, "origin")
        assert entry is not None, f"no origin model for {SOURCE}-{TARGET}"
        engine = TorchEngine([entry], TorchOptions(threads=threads, slots=8), clock=time.perf_counter)
        models = engine.load()
        self.info: ModelInfo = models[0].info
        self.vocab = Vocab.load(entry.src_vocab)
        self._engine = engine
        self._scheduler = Scheduler(models, Limits())
        self._sessions = Sessions(SessionLimits())
        self._door = Door(budget_ms_max=FOREVER_MS, count_draft=lambda _: None, sessions=self._sessions)
        self._door.open(models)
        self._count = 0

    def translate(self, text: str, draft: Sequence[int] = (), session: str = "") -> Answer:
        """One sentence, alone."""
        self._count += 1
        now = time.perf_counter()
        submit = Submit(
            request_id="",
            model=self.info.name,
            src_vocab_hash=self.info.src_vocab_hash,
            trg_vocab_hash=self.info.trg_vocab_hash,
            src_ids=pack_ids([*self.vocab.encode(text), self.vocab.eos_id]),
            prefix_ids=self.info.prefix_ids,
            draft_ids=pack_ids(draft),
            budget_ms=FOREVER_MS,
            session=session,
            tenant=str(self._count),  # so that no encoder output is reused
        )
        if session:
            submit = msgspec.structs.replace(submit, tenant="")
        spec = self._door.admit(submit, self._count, now)
        assert not self._scheduler.submit(spec, now)
        while True:
            result = self._engine.run(self._scheduler.plan(now))
            for effect in self._scheduler.apply(result, now):
                if isinstance(effect, Ended):
                    seconds = time.perf_counter() - now
                    if session:
                        self._sessions.remember(question_of(submit, spec), effect.ending.ids, now)
                    return Answer(effect.ending, seconds)


def main(options: argparse.Namespace) -> Path:
    """The result's path."""
    registry = Registry.discover(options.models)
    origin = Origin(registry, options.threads)
    texts, source = sentences(options.corpora, f"{SOURCE}-{TARGET}", options.draft_sentences)
    texts = list(dict.fromkeys(texts))
    passes, notes = _drafted(origin, registry, options.threads, texts)
    captions, more = _captions(origin, registry, options.threads, texts, options.caption_sentences)
    measures = (
        Measure("drafted_passes_over_greedy", passes, "", DRAFTED_FLOOR, DRAFTED_TARGET, "lower"),
        Measure("captions_passes_over_scratch", captions, "", CAPTIONS_FLOOR, CAPTIONS_TARGET, "lower"),
    )
    return write_result("draft_verify", measures, {"sentences": source, "threads": options.threads, **notes, **more})


def _student(registry: Registry, threads: int) -> LocalEngine:
    entry = registry.find(SOURCE, TARGET, "edge")
    assert entry is not None, f"no edge model for {SOURCE}-{TARGET}"
    return open_engine(entry, device="cpu", threads=threads)


def _drafted(origin: Origin, registry: Registry, threads: int, texts: Sequence[str]) -> tuple[float, dict[str, Note]]:
    engine = _student(registry, threads)
    steps = passes = fed = differing = 0
    plain_s = drafted_s = draft_s = 0.0
    for text in texts:
        began = time.perf_counter()
        (draft,) = engine.translate([LocalInput(text, tuple(origin.vocab.encode(text)))])
        draft_s += time.perf_counter() - began
        plain, drafted = origin.translate(text), origin.translate(text, draft.ids)
        steps += plain.ending.steps
        passes += drafted.ending.steps
        fed += drafted.ending.steps + drafted.ending.draft_tokens
        differing += plain.ending.ids != drafted.ending.ids
        plain_s += plain.seconds
        drafted_s += drafted.seconds
    engine.close()
    return passes / steps, {
        "drafted_sentences": len(texts),
        "drafted_differing": differing,
        "drafted_fed_over_greedy": round(fed / steps, 3),
        "encode_and_decode_plain_over_drafted": round(plain_s / drafted_s, 3),
        "encode_and_decode_plain_over_drafted_and_draft": round(plain_s / (drafted_s + draft_s), 3),
    }


def _captions(
    origin: Origin, registry: Registry, threads: int, texts: Sequence[str], count: int
) -> tuple[float, dict[str, Note]]:
    """From the session alone; with the student's drafts too is a note."""
    student = _student(registry, threads)
    steps = passes = with_student = differing = requests = 0
    plain_s = ours_s = 0.0
    typed = [text for text in texts if len(text.split()) >= WORDS_MIN and not ENDS_WITHIN.search(text)][:count]
    for number, text in enumerate(typed):
        for prefix in _growing(text):
            plain, ours = origin.translate(prefix), origin.translate(prefix, session=f"caption {number}")
            (draft,) = student.translate([LocalInput(prefix, tuple(origin.vocab.encode(prefix)))])
            both = origin.translate(prefix, draft.ids)
            requests += 1
            with_student += both.ending.steps
            steps += plain.ending.steps
            passes += ours.ending.steps
            differing += (plain.ending.ids != ours.ending.ids) + (plain.ending.ids != both.ending.ids)
            plain_s += plain.seconds
            ours_s += ours.seconds
    student.close()
    return passes / steps, {
        "caption_sentences": len(typed),
        "caption_requests": requests,
        "captions_differing": differing,
        "captions_with_edge_drafts_over_scratch": round(with_student / steps, 3),
        "captions_encode_and_decode_plain_over_ours": round(plain_s / ours_s, 3),
    }


def _growing(text: str) -> Iterator[str]:
    words = text.split()
    for end in range(1, len(words) + 1):
        yield " ".join(words[:end])
