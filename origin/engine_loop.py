"""The engine thread: step after step while there is work, asleep on a condition when there is none.

It only moves things. Who runs is the scheduler's decision, how is the engine's, and what callers are told is the
server's; a simulation calls `step` itself, with its own clock and no thread.
Requests cross into the thread through an inbox that is swapped once a step, effects leave it in one call a step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.wire.errors import Overloaded, Unavailable
from origin.core.model import ServedModel
from origin.core.plan import Effect, Load, Plan, Result
from origin.core.scheduler import Scheduler
from origin.core.sequence import Spec
from origin.engine.base import Engine, failures

logger = logging.getLogger(__name__)


class Stats(msgspec.Struct):
    """Running totals since the start. Written by the engine thread; a reader takes differences."""

    steps: int = 0
    rows: int = 0
    busy_s: float = 0.0
    failed_steps: int = 0
    encoded: int = 0
    encoder_reused: int = 0


class EngineLoop:
    """`make_scheduler` gets the loaded models. `deliver` gets each step's effects, on the engine thread."""

    def __init__(
        self,
        engine: Engine,
        make_scheduler: Callable[[tuple[ServedModel, ...]], Scheduler],
        *,
        clock: Clock,
        deliver: Callable[[list[Effect]], None],
        inbox_max: int = 16_384,
    ) -> None:
        self.scheduler: Scheduler  # from `load` on
        self._engine = engine
        self._make_scheduler = make_scheduler
        self._clock = clock
        self._deliver = deliver
        self._inbox: list[Spec | int] = []
        self._inbox_max = inbox_max
        self._wake = threading.Condition()
        self._open = False  # loaded, and not stopped
        self._stopped = False
        self.stats = Stats()
        self.load_now = Load()

    # ---- any thread ----

    def submit(self, spec: Spec) -> None:
        """Hand a sequence to the next step. Raises Overloaded, or Unavailable when nobody will step again."""
        with self._wake:
            if not self._open:
                raise Unavailable("the engine is not running")
            if len(self._inbox) >= self._inbox_max:
                raise Overloaded("the engine's inbox is full")
            self._inbox.append(spec)
            self._wake.notify()

    def cancel(self, sequence_id: int) -> None:
        """End a sequence in the next step."""
        with self._wake:
            self._inbox.append(sequence_id)
            self._wake.notify()

    def stop(self) -> None:
        """Let `run` return after the current step. What still runs then is cancelled."""
        with self._wake:
            self._open, self._stopped = False, True
            self._wake.notify()

    # ---- the engine thread ----

    def load(self) -> tuple[ServedModel, ...]:
        """Load the engine; from now on sequences are accepted."""
        models = self._engine.load()
        self.scheduler = self._make_scheduler(models)
        self.load_now = self.scheduler.load()
        self._open = not self._stopped
        return models

    def run(self) -> None:
        """Step until stopped, then end what is left. The engine is closed on return, whatever happened."""
        try:
            while self._work_waits():
                self.step()
            self._deliver(self._accept() + self.scheduler.cancel_all(self._clock()))
            self.load_now = self.scheduler.load()
        finally:
            self._open = False
            self._engine.close()

    def step(self) -> None:
        """One turn: take in, plan, run, apply, hand out."""
        effects = self._accept()
        plan = self.scheduler.plan(started := self._clock())
        result = self._run(plan)
        effects += [*plan.effects, *self.scheduler.apply(result, ended := self._clock())]
        self._count(plan, result, ended - started)
        if effects:
            self._deliver(effects)

    def _work_waits(self) -> bool:
        """True as soon as there is something to do, False once stopped. Sleeps in between."""
        if not len(self.scheduler):
            self.scheduler.check()
        with self._wake:
            while not (self._stopped or self._inbox or len(self.scheduler)):
                self._wake.wait()
            return not self._stopped

    def _accept(self) -> list[Effect]:
        with self._wake:
            inbox, self._inbox = self._inbox, []
        now = self._clock()
        effects: list[Effect] = []
        for item in inbox:
            effects += self.scheduler.cancel(item, now) if isinstance(item, int) else self.scheduler.submit(item, now)
        return effects

    def _run(self, plan: Plan) -> Result:
        """An engine that raises takes down the plan's sequences, and nothing else."""
        started = self._clock()
        try:
            result = self._engine.run(plan)
        except Exception:
            logger.exception("engine step failed, %d sequences with it", plan.rows)
            self.stats.failed_steps += 1
            return Result(tuple(failures(row for batch in plan.batches for row in batch.rows)))
        self.scheduler.measured(plan, self._clock() - started)
        return result

    def _count(self, plan: Plan, result: Result, seconds: float) -> None:
        self.load_now = self.scheduler.load()
        self.stats.encoded += result.encoded
        self.stats.encoder_reused += result.reused
        if plan.rows:
            self.stats.steps += 1
            self.stats.rows += plan.rows
            self.stats.busy_s += seconds
