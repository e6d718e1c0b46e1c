"""The scheduler against random histories: nobody lost, nobody answered twice, no slot leaked, order kept."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nearsay.wire.messages import Priority
from origin.core.admission import Mode
from origin.core.batch_share import BatchRules
from origin.core.plan import Ended, Fault, Outcome, Plan, Produced, Refused, Result
from origin.core.sequence import Spec, State
from origin.engine.echo import EchoEngine
from tests.origin.build import EOS, model, scheduler, spec

MODELS = (model("a", slots=3), model("b", slots=2, target_tokens_max=4))


class Histories(RuleBasedStateMachine):
    @initialize(
        ids_per_step=st.integers(1, 3),
        step_s=st.sampled_from([0.0, 0.0003, 0.02]),
        step_ratio=st.sampled_from([1.0, 1.3]),
        evictions_max=st.integers(0, 2),
        admission=st.sampled_from(["off", "dark", "on"]),
    )
    def start(self, ids_per_step: int, step_s: float, step_ratio: float, evictions_max: int, admission: Mode) -> None:
        self.now = 0.0
        self.engine = EchoEngine(MODELS, ids_per_step=ids_per_step, step_s=step_s, spend=self.spend)
        self.scheduler = scheduler(
            *MODELS,
            queue_max=4,
            batch_queue_max=3,
            tenants_max=2,
            admission=admission,
            batch=BatchRules(step_ratio=step_ratio, evictions_max=evictions_max),
        )
        self.specs: dict[int, Spec] = {}
        self.streamed: dict[int, list[int]] = {}
        self.ends: dict[int, Ended | Refused] = {}

    def spend(self, seconds: float) -> None:
        self.now += seconds

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
        budget=st.sampled_from([0.001, 0.1, 1, 5, 20]),
        priority=st.sampled_from(["interactive", "batch"]),
        stream=st.booleans(),
        tenant=st.sampled_from(["", "a", "b"]),
    )
    def submit(
        self,
        which: object,
        words: list[int],
        width: int,
        draft: list[int],
        budget: float,
        priority: Priority,
        stream: bool,
        tenant: str,
    ) -> None:
        new = spec(
            len(self.specs),
            model=which.name,  # type: ignore[attr-defined]
            source=(*words, EOS),
            width=min(width, which.slots),  # type: ignore[attr-defined]
            draft=tuple(draft),
            arrived=self.now,
            deadline=self.now + budget,
            priority=priority,
            stream=stream,
            tenant=tenant,
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

    @rule(seconds=st.sampled_from([0.001, 0.26, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(cancelled=st.none() | st.integers(0, 200))
    def step(self, cancelled: int | None) -> None:
        """A step; perhaps someone leaves while the engine is at it."""
        plan = self.scheduler.plan(self.now)
        self.perform(plan.effects)
        self.plan_is_sound(plan)
        began = self.now
        result = self.engine.run(plan)
        self.scheduler.measured(plan, self.now - began)
        if cancelled is not None:
            self.cancel(cancelled)
        self.perform(self.scheduler.apply(result, self.now))

    @rule(which=st.integers(0, 7), fault=st.sampled_from(["engine", "engine", "memory"]))
    def broken_step(self, which: int, fault: Fault) -> None:
        """A step in which some passes break; the engine knows no more of who was in them than of who is dropped."""
        plan = self.scheduler.plan(self.now)
        self.perform(plan.effects)
        self.plan_is_sound(plan)
        outcomes = [
            Outcome(o.sequence, finish="failed", fault=fault) if which >> (number % 3) & 1 else o
            for number, o in enumerate(self.engine.run(plan).outcomes)
        ]
        self.perform(self.scheduler.apply(Result(tuple(outcomes)), self.now))

    @rule()
    def new_start(self) -> None:
        """The engine is started anew."""
        self.engine.close()
        self.scheduler.start_over(self.now)

    def plan_is_sound(self, plan: Plan) -> None:
        """Someone gets on; all interactive work that has slots does; nobody who ended, or whose time is over."""
        rows = [row.sequence for batch in plan.batches for row in batch.rows]
        live = self.scheduler._sequences
        assert len(rows) == len(set(rows)) and bool(rows) == bool(live)
        assert set(rows) <= live.keys() and all(self.specs[number].deadline > self.now for number in rows)
        running = {number for number, sequence in live.items() if sequence.state is State.RUNNING}
        assert {number for number in running if self.specs[number].priority == "interactive"} <= set(rows) <= running

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
                assert end.ending.reason != "failed" or end.ending.error in (
                    "overloaded",
                    "unavailable",
                    "internal_error",
                )
                assert tuple(self.streamed[number]) == said[: len(self.streamed[number])]

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(400):  # queue 7 deep, 5 slots, at most 5 steps each, some of them by turns only
            if len(self.scheduler):
                self.step(None)
                self.now += 0.01
        assert set(self.ends) == set(self.specs), "someone never heard back"


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
