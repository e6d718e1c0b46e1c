"""An origin without links and threads, for cases that count decoder passes: door, sessions, scheduler and engine.

Sequences run alone, one after the other. Nothing is reused between them but what a session or its tenant remembers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

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
FOREVER_MS = 1e9


class Answer(msgspec.Struct, frozen=True):
    """ending, and seconds from the request to it."""

    ending: Ending
    seconds: float


class Origin:
    """`translate` one sentence. `registry` must have an origin model for SOURCE-TARGET."""

    def __init__(self, registry: Registry, threads: int) -> None:
        entry = registry.find(SOURCE, TARGET, "origin")
        assert entry is not None, f"no origin model for {SOURCE}-{TARGET}"
        engine = TorchEngine([entry], TorchOptions(threads=threads, slots=8), clock=time.perf_counter)
        models = engine.load()
        self.info: ModelInfo = models[0].info
        self.vocab, self.target = Vocab.load(entry.src_vocab), Vocab.load(entry.trg_vocab)
        self._engine = engine
        self._scheduler = Scheduler(models, Limits())
        self._sessions = Sessions(SessionLimits())
        self._door = Door(budget_ms_max=FOREVER_MS, count_draft=lambda _: None, sessions=self._sessions)
        self._door.open(models)
        self._count = 0

    def translate(
        self, text: str, draft: Sequence[int] = (), session: str = "", bias: float = 0.0, *, drafts: bool = True
    ) -> Answer:
        """One sentence, alone. Without `drafts` the session's answers draft nothing, nor is this one remembered."""
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
            bias=bias,
        )
        spec = self._door.admit(submit, self._count, now)
        plain = {} if drafts else {"draft": (), "draft_more": ()}
        spec = msgspec.structs.replace(spec, tenant=str(self._count), **plain)  # no encoder output is reused
        assert not self._scheduler.submit(spec, now)
        while True:
            result = self._engine.run(self._scheduler.plan(now))
            for effect in self._scheduler.apply(result, now):
                if isinstance(effect, Ended):
                    seconds = time.perf_counter() - now
                    if session and drafts:
                        self._sessions.remember(question_of(submit, spec), effect.ending.ids, now, spec.caller_draft)
                    return Answer(effect.ending, seconds)


class Student:
    """The edge's own model."""

    def __init__(self, registry: Registry, threads: int) -> None:
        entry = registry.find(SOURCE, TARGET, "edge")
        assert entry is not None, f"no edge model for {SOURCE}-{TARGET}"
        self._engine: LocalEngine = open_engine(entry, device="cpu", threads=threads)

    def ids(self, text: str, source_ids: Sequence[int]) -> tuple[int, ...]:
        """Target ids of a sentence."""
        (output,) = self._engine.translate([LocalInput(text, tuple(source_ids))])
        return output.ids

    def close(self) -> None:
        self._engine.close()


def growing(text: str) -> Iterator[str]:
    """A sentence as it is typed: its first word, its first two, and so on."""
    words = text.split()
    for end in range(1, len(words) + 1):
        yield " ".join(words[:end])
