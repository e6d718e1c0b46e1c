"""The scheduler against random histories: nobody lost, nobody answered twice, no slot leaked, order kept."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from origin.core.plan import Ended, Produced, Refused
from origin.core.sequence import Spec
from origin.engine.echo import EchoEngine
from tests.origin.build import EOS, model, scheduler, spec

MODELS = (model("a", slots=3), model("b", slots=2, target_tokens_max=4))


class Histories(RuleBasedStateMachine):
    @initialize(ids_per_step=st.integers(1, 3))
    def start(self, ids_per_step: int) -> None:
        self.now = 0.0
        self.engine = EchoEngine(MODELS, ids_per_step=ids_per_step)
        self.scheduler = scheduler(*MODELS, queue_max=4, batch_queue_max=3, encode_tokens_per_step=512)
        self.specs: dict[int, Spec] = {}
        self.streamed: dict[int, list[int]] = {}
        self.ends: dict[int, Ended | Refused] = {}

    def perform(self, effects: object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            assert effect.sequence not in self.ends, "spoken to after its end"
            if isinstance(effect, Produced):
                assert self.specs[effect.sequence].stream
                self.streamed[effect.sequence] += effect.ids
            else:
                self.ends[effect.sequence] = effect

    @rule(
        which=st.sampled_from(MODELS),
        words=st.lists(st.integers(1, 9), max_size=6),
        width=st.integers(1, 3),
        draft=st.lists(st.integers(1, 9), max_size=4),
        budget=st.integers(1, 20),
        batch=st.booleans(),
        stream=st.booleans(),
    )
    def submit(
        self, which: object, words: list[int], width: int, draft: list[int], budget: int, batch: bool, stream: bool
    ) -> None:
        new = spec(
            len(self.specs),
            model=which.name,  # type: ignore[attr-defined]
            source=(*words, EOS),
            width=min(width, which.slots),  # type: ignore[attr-defined]
            draft=tuple(draft),
            arrived=self.now,
            deadline=self.now + budget,
            priority="batch" if batch else "interactive",
            stream=stream,
            target_tokens_max=4,
        )
        self.specs[new.id] = new
        self.streamed[new.id] = []
        self.perform(self.scheduler.submit(new, self.now))

    @rule(which=st.integers(0, 200))
    def cancel(self, which: int) -> None:
        self.perform(self.scheduler.cancel(which % (len(self.specs) + 1), self.now))

    @rule()
    def cancel_storm(self) -> None:
        for sequence in range(len(self.specs)):
            self.perform(self.scheduler.cancel(sequence, self.now))
        assert len(self.scheduler) == 0
        assert self.scheduler.load().slots_free == 5

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(cancelled=st.none() | st.integers(0, 200))
    def step(self, cancelled: int | None) -> None:
        """A step; perhaps someone leaves while the engine is at it."""
        plan = self.scheduler.plan(self.now)
        self.perform(plan.effects)
        result = self.engine.run(plan)
        if cancelled is not None:
            self.cancel(cancelled)
        self.perform(self.scheduler.apply(result, self.now))

    @invariant()
    def books_balance(self) -> None:
        self.scheduler.check()
        assert len(self.scheduler) == len(self.specs) - len(self.ends)

    @invariant()
    def answers_are_right(self) -> None:
        for number, end in self.ends.items():
            if isinstance(end, Ended):
                said, wanted = end.ending.ids, self.specs[number].source[-2::-1]
                assert said == wanted[: len(said)]
                assert end.ending.reason != "stop" or said == wanted
                assert end.ending.reason != "length" or len(said) == 4
                assert tuple(self.streamed[number]) == said[: len(self.streamed[number])]

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(100):  # queue 7 deep, 5 slots, at most 5 steps each
            if len(self.scheduler):
                self.step(None)
        assert set(self.ends) == set(self.specs), "someone never heard back"


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
