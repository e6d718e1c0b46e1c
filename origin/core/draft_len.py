"""Whether drafts pay: how long they stand, and how busy a model may be before verifying them costs more than it saves.

Decides: which models ask for drafts, and whether a draft that came anyway is tried.
Must not know: tokens, tensors, clocks, who waits.
Rule: with n sequences in a pass, one costs (pass_tokens / n + 1) per id plain, and (passes * pass_tokens / n + fed)
drafted, where `passes` and `fed` are passes and fed ids per id. So drafts pay while
n * (fed - 1) < (1 - passes) * pass_tokens. Both are averages over ended sequences, apart for each source of drafts.
Invariant: a rule that says no drifts back to what is expected of drafts unseen, so that it asks again some day.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import get_args

import msgspec

from origin.core.model import ServedModel
from origin.core.plan import DraftUse, Outcome
from origin.core.sequence import DraftSource, Sequence, Spec

EDGE: DraftSource = "edge"
SOURCES: tuple[DraftSource, ...] = get_args(DraftSource)

ACCEPT_LENGTHS = (0, 1, 2, 4, 8, 16, 32)  # upper bounds of the histogram's buckets; the last bucket is open
PASSES_EXPECTED, FED_EXPECTED = 0.6, 1.8  # of drafts that haven't been seen yet
MEMORY = 50  # ended sequences that an average rests on
DRIFT = 500  # undrafted ones after which an old average counts for little


class DraftRule:
    """Drafts of one source for one model."""

    def __init__(self, pass_tokens: float) -> None:
        self.lengths = [0] * (len(ACCEPT_LENGTHS) + 1)
        self.untried = 0
        self.passes = PASSES_EXPECTED
        self.fed = FED_EXPECTED
        self._pass_tokens = pass_tokens

    def pays(self, running: int) -> bool:
        """Whether a draft would pay for one more sequence beside those that run."""
        return (running + 1) * (self.fed - 1.0) < (1.0 - self.passes) * self._pass_tokens

    def note_drafted(self, ids: int, passes: int, fed: int) -> None:
        """A sequence with a draft has ended: ids, the closing eos included, in so many passes over `fed` ids."""
        self.passes += (passes / ids - self.passes) / MEMORY
        self.fed += (fed / ids - self.fed) / MEMORY

    def note_plain(self) -> None:
        """A sequence without has ended."""
        self.passes += (PASSES_EXPECTED - self.passes) / DRIFT
        self.fed += (FED_EXPECTED - self.fed) / DRIFT


class DraftRules:
    """The rules of all models. `running_max`: more sequences than that, and no draft is tried whatever the averages."""

    def __init__(self, models: Iterable[ServedModel], running_max: int) -> None:
        self._rules: dict[tuple[str, str], DraftRule] = {}
        self._running_max = running_max
        for model in models:
            self.open(model)

    def open(self, model: ServedModel) -> None:
        """A model comes."""
        self._rules |= {(model.name, source): DraftRule(model.pass_tokens) for source in SOURCES}

    def close(self, model: str) -> None:
        """A model goes."""
        for source in SOURCES:
            del self._rules[model, source]

    def pay(self, model: str, source: DraftSource, running: int) -> bool:
        """Whether a draft would pay for one more sequence of a model of which `running` run."""
        return running <= self._running_max and self._rules[model, source].pays(running)

    def sift(self, spec: Spec, running: int) -> Spec:
        """The sequence as it should be decoded: without its draft where that doesn't pay now."""
        if not spec.draft or self.pay(spec.model, spec.draft_source, running):
            return spec
        self._rules[spec.model, spec.draft_source].untried += 1
        return msgspec.structs.replace(spec, draft=(), draft_more=())

    def note(self, spec: Spec, outcome: Outcome) -> None:
        """Count the accept length of a pass that verified something."""
        if outcome.drafted:
            self._rules[spec.model, spec.draft_source].lengths[bisect_left(ACCEPT_LENGTHS, outcome.accepted)] += 1

    def note_end(self, sequence: Sequence) -> None:
        """Learn from a sequence that came to its own end."""
        spec = sequence.spec
        if spec.draft:
            rule = self._rules[spec.model, spec.draft_source]
            rule.note_drafted(len(sequence.produced) + 1, sequence.steps, sequence.steps + sequence.drafted)
        elif spec.width == 1:
            for source in SOURCES:
                self._rules[spec.model, source].note_plain()

    def use(self) -> tuple[DraftUse, ...]:
        """What drafts have done so far, for those who look from outside."""
        return tuple(
            DraftUse(*name, tuple(rule.lengths), rule.untried, rule.passes, rule.fed)
            for name, rule in self._rules.items()
        )
