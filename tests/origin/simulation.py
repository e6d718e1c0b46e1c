"""An origin's loop and scheduler on a clock that jumps: seeded traffic, an engine with known answers and costs.

No thread, no asyncio. Every plan is checked before it runs, every effect as it comes.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable

from nearsay.wire.messages import Priority
from origin.core.model import ServedModel
from origin.core.plan import Effect, Ended, Plan, Produced, Refused, Result
from origin.core.scheduler import Limits, Scheduler
from origin.core.sequence import Spec
from origin.engine.echo import EchoEngine
from origin.engine_loop import EngineLoop
from tests.origin.build import EOS, model, spec

STEPS_MAX = 200_000


class Watched(EchoEngine):
    """Checks each plan before it runs it."""

    def __init__(self, simulation: Simulation, models: Iterable[ServedModel], **fields: float) -> None:
        super().__init__([*models], spend=simulation.spend, **fields)  # type: ignore[arg-type]
        self._simulation = simulation

    def run(self, plan: Plan) -> Result:
        self._simulation.watch(plan)
        if self._simulation.chance.random() < self._simulation.broken:
            self._simulation.hits.update(row.sequence for batch in plan.batches for row in batch.rows)
            raise RuntimeError("a pass broke")
        return super().run(plan)


class Simulation:
    """`slow`: chance that a step takes twenty times as long; `broken`: that it raises. Events are (time, what to do).
    `hits`: broken steps that a sequence was in. Checking every plan costs a look at everyone who ever came: long
    simulations that are about time can leave it out (`checked`)."""

    def __init__(
        self,
        seed: int,
        *models: ServedModel,
        slow: float = 0.01,
        broken: float = 0.0,
        checked: bool = True,
        **limits: object,
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.specs: dict[int, Spec] = {}
        self.ends: dict[int, Ended | Refused] = {}
        self.ended_at: dict[int, float] = {}
        self.streamed: dict[int, list[int]] = {}
        self.cancelled: set[int] = set()  # known to the loop
        self.plans: list[tuple[float, Plan]] = []
        self._slow = slow
        self.broken = broken
        self.hits: Counter[int] = Counter()
        self._checked = checked
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._models = models or (model("a", slots=6), model("b", slots=4))
        engine = Watched(self, self._models, step_s=0.004, row_s=0.0004, encode_token_s=0.0001)
        self.loop = EngineLoop(
            engine,
            lambda served: Scheduler(served, Limits(**limits)),  # type: ignore[arg-type]
            clock=lambda: self.now,
            deliver=self._perform,
        )
        self.loop.load()

    @property
    def scheduler(self) -> Scheduler:
        return self.loop.scheduler

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, len(self._events) + len(self.specs) * 1000, event))

    def spend(self, seconds: float) -> None:
        self.now += seconds * (20.0 if self.chance.random() < self._slow else self.chance.uniform(0.9, 1.1))

    def submit(self, priority: Priority, budget_s: float, *, words: int = 0, **fields: object) -> int:
        """A random source; its answer is the source reversed."""
        number = len(self.specs) + 1
        source = (*(self.chance.randint(1, 9) for _ in range(words or self.chance.randint(1, 20))), EOS)
        fields = {
            "model": self.chance.choice(self._models).name,
            "stream": self.chance.random() < 0.5,
            "draft": source[-2::-1][: self.chance.randint(1, 20)] if self.chance.random() < 0.2 else (),
            **fields,
        }
        new = spec(number, source=source, priority=priority, arrived=self.now, deadline=self.now + budget_s, **fields)  # type: ignore[arg-type]
        self.specs[number], self.streamed[number] = new, []
        self.loop.submit(new)
        return number

    def cancel(self, number: int) -> None:
        self.cancelled.add(number)
        self.loop.cancel(number)

    def live(self) -> list[int]:
        return [number for number in self.specs if number not in self.ends]

    def run(self, until: float = float("inf")) -> None:
        """Until nothing is left to do, or the time has come."""
        for _ in range(STEPS_MAX):
            if not len(self.scheduler) and not self.loop._inbox:
                if not self._events or self._events[0][0] >= until:
                    return
                self.now = max(self.now, self._events[0][0])
            if self.now >= until:
                return
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self.loop.step()
            self.scheduler.check()
        raise AssertionError("the simulation never came to an end")

    def watch(self, plan: Plan) -> None:
        """A plan is made of those who live and are in time, each once, in slots of their own."""
        if not self._checked:
            return
        rows = [row for batch in plan.batches for row in batch.rows]
        numbers = {row.sequence for row in rows}
        assert rows or not len(self.scheduler), "work waits, and nobody is taken on"
        assert len(numbers) == len(rows)
        for batch in plan.batches:
            slots = [slot for row in batch.rows for slot in row.slots]
            assert len(slots) == len(set(slots)) == batch.work.rows
            assert {new.sequence for new in batch.encode} <= {row.sequence for row in batch.rows}
        assert not numbers & self.cancelled and not numbers & self.ends.keys()
        gone = {effect.sequence for effect in plan.effects}
        late = {number for number in self.live() if self.specs[number].deadline <= self.now}
        assert late <= gone | self.cancelled | self._refused_now(), "the expired leave within a step"
        assert sum(len(new.source) for batch in plan.batches for new in batch.encode) <= 512
        self.plans.append((self.now, plan))

    def _refused_now(self) -> set[int]:
        """Submitted, but neither ended nor known: their refusal is on its way."""
        return {number for number in self.live() if number not in self.scheduler._sequences}

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert effect.sequence not in self.ends, "spoken to after its end"
            if isinstance(effect, Produced):
                self.streamed[effect.sequence] += effect.ids
                continue
            self.ends[effect.sequence] = effect
            self.ended_at[effect.sequence] = self.now
            self.ended(effect.sequence)

    def ended(self, number: int) -> None:
        """For simulations in which an answer leads to something."""

    def check_answers(self) -> None:
        """Everyone heard back once, and nobody heard anything wrong."""
        assert self.ends.keys() == self.specs.keys()
        for number, end in self.ends.items():
            if isinstance(end, Refused):
                assert end.retry_after_ms is not None and end.retry_after_ms >= 0.0
                continue
            said, wanted = end.ending.ids, self.specs[number].source[-2::-1]
            assert said == wanted if end.ending.reason == "stop" else said == wanted[: len(said)]
            unlucky = ("failed",) if self.broken else ()
            assert end.ending.reason in ("stop", "expired", "cancelled", *unlucky)
            assert tuple(self.streamed[number]) == said[: len(self.streamed[number])]
            if end.ending.reason == "stop" and self.specs[number].stream:
                assert all(stage >= 0.0 for stage in end.ending.stages_ms.values())

    def reasons(self, priority: Priority) -> list[str]:
        """How those of a class ended."""
        ends = [end for number, end in self.ends.items() if self.specs[number].priority == priority]
        return [end.ending.reason if isinstance(end, Ended) else end.code for end in ends]

    def times(self, priority: Priority) -> list[float]:
        """Seconds to the answer, of those of a class that got one."""
        return [
            self.ended_at[number] - self.specs[number].arrived
            for number, end in self.ends.items()
            if self.specs[number].priority == priority and isinstance(end, Ended) and end.ending.reason == "stop"
        ]
