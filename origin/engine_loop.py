"""The engine thread: step after step while there is work, asleep on a condition when there is none.

It only moves things. Who runs is the scheduler's decision, how is the engine's, and what callers are told is the
server's; a simulation calls `step` itself, with its own clock and no thread.
Requests cross into the thread through an inbox that is swapped once a step, effects leave it in one call a step.
An engine that does nothing any more, step after step, is started anew; one that doesn't recover ends the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.wire.errors import Overloaded, Unavailable
from origin.core.model import ServedModel
from origin.core.plan import Effect, Load, Plan, Result
from origin.core.scheduler import Scheduler
from origin.core.sequence import Spec
from origin.engine.base import Engine, Prepared, failures

logger = logging.getLogger(__name__)

USELESS_STEPS_MAX = 3  # in a row, each without a row that went on; then the engine is started anew
RESTARTS_MAX = 3  # of the engine in a row, without a useful step between; then the loop ends


class EngineBroken(Exception):
    """The engine was started anew, time and again, and still does nothing."""


class _Chore(NamedTuple):
    """Something to be done on the engine thread between two steps; tried after each until it says that it is done."""

    do: Callable[[], bool]
    done: Future[None]


class Stats(msgspec.Struct):
    """Running totals since the start. Written by the engine thread; a reader takes differences."""

    steps: int = 0
    rows: int = 0
    busy_s: float = 0.0
    failed_steps: int = 0
    encoded: int = 0
    encoder_reused: int = 0
    passes_cut: int = 0
    engine_restarts: int = 0


class EngineLoop:
    """`make_scheduler` gets the loaded models. `deliver` gets each step's effects, on the engine thread. `keep_warm_s`:
    an engine that has nothing to do does something small that often; 0 = nothing."""

    def __init__(
        self,
        engine: Engine,
        make_scheduler: Callable[[tuple[ServedModel, ...]], Scheduler],
        *,
        clock: Clock,
        deliver: Callable[[list[Effect]], None],
        inbox_max: int = 16_384,
        keep_warm_s: float = 0.0,
    ) -> None:
        self.scheduler: Scheduler  # from `load` on
        self._engine = engine
        self._make_scheduler = make_scheduler
        self._clock = clock
        self._deliver = deliver
        self._inbox: list[Spec | int] = []
        self._inbox_max = inbox_max
        self._keep_warm_s = keep_warm_s or None
        self._chores: list[_Chore] = []
        self._useless = self._restarts = 0  # in a row
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

    def adopt(self, prepared: Prepared) -> Future[None]:
        """Serve a model that the engine has prepared; done before the next step."""

        def do() -> bool:
            self.scheduler.open(prepared.model)
            self._engine.adopt(prepared)
            return True

        return self._put_chore(do)

    def release(self, model: str) -> Future[None]:
        """Free a model for which nothing will be submitted any more; done when its last sequence has ended."""

        def do() -> bool:
            if not self.scheduler.close(model):
                return False
            self._engine.release(model)
            return True

        return self._put_chore(do)

    def stop(self) -> None:
        """Let `run` return after the current step. What still runs then is cancelled."""
        with self._wake:
            self._open, self._stopped = False, True
            self._wake.notify()

    def _put_chore(self, do: Callable[[], bool]) -> Future[None]:
        chore = _Chore(do, Future())
        chore.done.set_running_or_notify_cancel()  # from here on it can't be cancelled
        with self._wake:
            if not self._open:
                raise Unavailable("the engine is not running")
            self._chores.append(chore)
            self._wake.notify()
        return chore.done

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
            with self._wake:
                self._open = False
                chores, self._chores = self._chores, []
            for chore in chores:
                chore.done.set_exception(Unavailable("the engine has stopped"))
            self._engine.close()

    def step(self) -> None:
        """One turn: take in, plan, run, apply, hand out. Raises EngineBroken."""
        effects = self._accept()
        plan = self.scheduler.plan(started := self._clock())
        result = self._run(plan)
        if self._useless == USELESS_STEPS_MAX:
            self._start_over()
            result = Result()
        effects += [*plan.effects, *self.scheduler.apply(result, ended := self._clock())]
        self._count(plan, result, ended - started)
        if effects:
            self._deliver(effects)

    def _work_waits(self) -> bool:
        """True as soon as there is something to do, False once stopped. Sleeps in between."""
        if not len(self.scheduler):
            self.scheduler.check()
        while True:
            with self._wake:
                if self._stopped or self._inbox or self._chores or len(self.scheduler):
                    return not self._stopped
                woken = self._wake.wait(self._keep_warm_s)
            if not woken:
                self._keep_warm()

    def _keep_warm(self) -> None:
        try:
            self._engine.keep_warm()
        except Exception:  # if it is more than this, the next step meets it, too
            logger.exception("a step to keep warm broke")

    def _accept(self) -> list[Effect]:
        with self._wake:
            inbox, self._inbox = self._inbox, []
            chores = list(self._chores)
        now = self._clock()
        effects: list[Effect] = []
        for item in inbox:
            effects += self.scheduler.cancel(item, now) if isinstance(item, int) else self.scheduler.submit(item, now)
        for chore in chores:  # behind the inbox: a model isn't released before those who came for it are known
            self._try(chore)
        return effects

    def _try(self, chore: _Chore) -> None:
        try:
            done = chore.do()
        except Exception as error:  # whoever asked for it is told
            chore.done.set_exception(error)
        else:
            if not done:
                return
            chore.done.set_result(None)
        with self._wake:
            self._chores.remove(chore)

    def _run(self, plan: Plan) -> Result:
        """An engine that raises takes down the plan's sequences, and nothing else."""
        started = self._clock()
        try:
            result = self._engine.run(plan)
        except Exception:
            logger.exception("engine step failed, %d sequences with it", plan.rows)
            result = Result(tuple(failures((row for batch in plan.batches for row in batch.rows), "engine")))
        if result.useless:
            self.stats.failed_steps += 1
            self._useless += 1
        elif plan.rows:
            self._useless = self._restarts = 0
            self.scheduler.measured(plan, self._clock() - started)
        return result

    def _start_over(self) -> None:
        """Start the engine anew; who runs begins again behind what it had. Raises what loading raises, EngineBroken."""
        if self._restarts == RESTARTS_MAX:
            raise EngineBroken(f"{RESTARTS_MAX} new starts were of no use")
        self._useless = 0
        self._restarts += 1
        self.stats.engine_restarts += 1
        logger.error("the engine does nothing any more: starting it anew")
        self._engine.close()
        self._engine.load()
        self.scheduler.start_over(self._clock())

    def _count(self, plan: Plan, result: Result, seconds: float) -> None:
        self.load_now = self.scheduler.load()
        self.stats.encoded += result.encoded
        self.stats.encoder_reused += result.reused
        self.stats.passes_cut += result.cut
        if plan.rows:
            self.stats.steps += 1
            self.stats.rows += plan.rows
            self.stats.busy_s += seconds
