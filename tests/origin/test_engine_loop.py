"""The engine loop: by hand with a clock of ours, and on its thread."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

from nearsay.wire.errors import Overloaded, Unavailable
from origin.core.model import ServedModel
from origin.core.plan import Effect, Ended, Plan, Produced, Refused, Result
from origin.core.scheduler import Limits, Scheduler
from origin.core.step_cost import Work
from origin.engine.base import Prepared
from origin.engine.echo import EchoEngine, EchoPrepared
from origin.engine_loop import RESTARTS_MAX, USELESS_STEPS_MAX, EngineBroken, EngineLoop
from tests.origin.build import EOS, endings, model, spec

WAIT_S = 10.0


class ByHand:
    """A loop without a thread: time passes only in the engine."""

    def __init__(self, engine: EchoEngine | None = None, **limits: int) -> None:
        self.now = 0.0
        self.effects: list[Effect] = []
        self.engine = engine or EchoEngine([model(slots=2)], step_s=1.0, spend=self.spend)
        self.loop = EngineLoop(
            self.engine,
            lambda models: Scheduler(models, Limits(**limits)),
            clock=lambda: self.now,
            deliver=self.effects.extend,
            inbox_max=8,
        )
        self.loop.load()

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_a_sequence_through_steps() -> None:
    hand = ByHand()
    hand.loop.submit(spec(1, source=(5, 6, EOS), stream=True))
    for _ in range(3):
        hand.loop.step()
    *tokens, end = hand.effects
    assert tokens == [Produced(1, (6,)), Produced(1, (5,))]
    assert isinstance(end, Ended) and (end.ending.reason, end.ending.ids) == ("stop", (6, 5))
    assert end.ending.stages_ms == {"origin_queue": 0.0, "encode": 0.0, "decode": 3000.0}
    assert (hand.loop.stats.steps, hand.loop.stats.rows, hand.loop.stats.busy_s) == (3, 3, 3.0)
    assert (hand.loop.load_now.running, hand.loop.load_now.slots_free) == (0, 2)


def test_cancel_frees_the_slots_within_one_step() -> None:
    hand = ByHand()
    hand.loop.submit(spec(1, width=2))
    hand.loop.submit(spec(2, width=2))
    hand.loop.step()
    assert (hand.loop.load_now.running, hand.loop.load_now.queued) == (1, 1)
    hand.loop.cancel(1)
    hand.loop.step()
    assert endings(hand.effects) == {1: "cancelled"}
    assert (hand.loop.load_now.running, hand.loop.load_now.queued) == (1, 0)


def test_submitted_and_cancelled_between_two_steps() -> None:
    hand = ByHand()
    hand.loop.submit(spec(1))
    hand.loop.cancel(1)
    hand.loop.step()
    assert endings(hand.effects) == {1: "cancelled"}
    assert hand.loop.stats.steps == 0


def test_refusals_are_effects() -> None:
    hand = ByHand(queue_max=1)
    hand.loop.submit(spec(1))
    hand.loop.submit(spec(2))
    hand.loop.step()
    assert hand.effects == [Refused(2, "overloaded", retry_after_ms=0.0)]


def test_the_inbox_is_bounded_but_takes_every_cancel() -> None:
    hand = ByHand()
    for number in range(8):
        hand.loop.submit(spec(number))
    with pytest.raises(Overloaded):
        hand.loop.submit(spec(8))
    for number in range(8):
        hand.loop.cancel(number)
    hand.loop.step()
    assert endings(hand.effects) == dict.fromkeys(range(8), "cancelled")


def test_what_steps_took_is_learned_but_not_from_those_that_broke() -> None:
    hand = ByHand(engine := Explosive([model(slots=2)]))
    engine._step_s, engine._spend = 0.05, hand.spend
    hand.loop.submit(spec(1, source=(*[5] * 40, EOS)))
    for _ in range(20):
        hand.loop.step()
    cost = hand.loop.scheduler._residents["m@1"].cost
    assert cost.seen == 20 and 0.045 < cost.predict(Work(1)) < 0.055
    engine.error = RuntimeError("boom")
    hand.loop.step()
    assert cost.seen == 20


class Explosive(EchoEngine):
    """Raises in the steps that it is told to."""

    error: Exception | None = None
    heals = False  # when it is started anew
    loads = 0

    def load(self) -> tuple[ServedModel, ...]:
        self.loads += 1
        self.error = None if self.heals else self.error
        return super().load()

    def run(self, plan: Plan) -> Result:
        result = super().run(plan)
        if self.error is not None:
            raise self.error
        return result


def test_an_engine_that_raises_loses_nobody_and_the_loop_lives(caplog: pytest.LogCaptureFixture) -> None:
    hand = ByHand(engine := Explosive([model(slots=2)]))
    for number in (1, 2, 3):
        hand.loop.submit(spec(number, source=(5, EOS)))
    hand.loop.step()
    engine.error = RuntimeError("boom")
    with caplog.at_level(logging.ERROR):
        hand.loop.step()
    assert "2 sequences" in caplog.text and endings(hand.effects) == {}
    engine.error = None
    for _ in range(4):
        hand.loop.step()
    assert endings(hand.effects) == {1: "stop", 2: "stop", 3: "stop"}
    assert hand.loop.stats.failed_steps == 1 and hand.loop.stats.engine_restarts == 0
    hand.loop.scheduler.check()


def test_an_engine_that_does_nothing_any_more_is_started_anew() -> None:
    """What was lost with it is nobody's fault: all who run begin again behind what they had."""
    hand = ByHand(engine := Explosive([model(slots=4)]))
    engine.heals = True
    for number in range(1, 5):
        hand.loop.submit(spec(number, source=(*[5] * number, EOS)))
    hand.loop.step()
    engine.error = RuntimeError("CUDA error")
    for _ in range(2):
        hand.loop.step()
    for number in range(5, 8):
        hand.loop.submit(spec(number, source=(6, EOS)))
    assert engine.loads == 1
    hand.loop.step()
    assert engine.loads == 2 and engine.error is None
    before = endings(hand.effects)
    for _ in range(20):
        hand.loop.step()
    assert set(before.values()) == {"failed"}, "tried twice before anybody knew that it was the engine"
    assert endings(hand.effects) == before | dict.fromkeys(range(5, 8), "stop")
    assert (hand.loop.stats.engine_restarts, hand.loop.stats.failed_steps) == (1, 3)
    hand.loop.scheduler.check()


def test_new_starts_that_are_of_no_use_end_the_loop() -> None:
    hand = ByHand(engine := Explosive([model(slots=1)]))
    engine.error = RuntimeError("CUDA error")
    for number in range(40):
        if number < 8:
            hand.loop.submit(spec(number, source=(5, EOS)))
    with pytest.raises(EngineBroken):
        for _ in range(40):
            hand.loop.step()
    assert engine.loads == 1 + RESTARTS_MAX
    assert hand.loop.stats.failed_steps == USELESS_STEPS_MAX * (RESTARTS_MAX + 1)


def test_a_step_that_does_something_ends_the_row_of_useless_ones() -> None:
    hand = ByHand(engine := Explosive([model(slots=1)]))
    for number in range(6):
        hand.loop.submit(spec(number, source=(5, EOS)))
    for _ in range(12):
        engine.error = RuntimeError("boom")
        hand.loop.step()
        engine.error = None
        hand.loop.step()
    assert engine.loads == 1 and hand.loop.stats.failed_steps > USELESS_STEPS_MAX


# ---- models that come and go -----------------------------------------------------------------------------------------


def newer() -> Prepared:
    return EchoPrepared(model("n"))


def test_a_model_is_adopted_and_another_released_between_two_steps() -> None:
    hand = ByHand()
    hand.loop.submit(spec(1, source=(5, 6, EOS)))
    hand.loop.step()
    adopted, released = hand.loop.adopt(newer()), hand.loop.release("m@1")
    assert not adopted.done()
    hand.loop.step()
    assert adopted.done() and not released.done(), "one of its sequences lives"
    hand.loop.submit(spec(2, model="n@1", source=(7, EOS)))
    hand.loop.step()
    assert endings(hand.effects) == {1: "stop"}
    hand.loop.step()
    assert released.done() and endings(hand.effects) == {1: "stop", 2: "stop"}
    assert set(hand.engine._models) == {"n@1"} and hand.loop.load_now.slots_free == 4


def test_whoever_wanted_a_chore_hears_what_went_wrong() -> None:
    hand = ByHand()
    failed = hand.loop.adopt(EchoPrepared(model("m", slots=2)))  # a name that is taken
    hand.loop.step()
    assert isinstance(failed.exception(), AssertionError)
    hand.loop.submit(spec(1, source=(5, EOS)))
    hand.loop.step()
    hand.loop.step()
    assert endings(hand.effects) == {1: "stop"}


class Threaded:
    """A loop on a thread of its own; effects arrive in a queue."""

    def __init__(self, engine: EchoEngine | None = None, **options: float) -> None:
        self.effects: queue.Queue[Effect] = queue.Queue()
        self.loop = EngineLoop(
            engine or EchoEngine([model(slots=2)]),
            lambda models: Scheduler(models, Limits()),
            clock=lambda: 0.0,
            deliver=self._put,
            **options,  # type: ignore[arg-type]
        )
        self.loop.load()
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _put(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.effects.put(effect)

    def stop(self) -> None:
        self.loop.stop()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


def test_the_thread_wakes_for_work_and_sleeps_between() -> None:
    threaded = Threaded()
    for number in range(20):
        threaded.loop.submit(spec(number, source=(5, 6, EOS)))
        end = threaded.effects.get(timeout=WAIT_S)
        assert isinstance(end, Ended) and (end.sequence, end.ending.ids) == (number, (6, 5))
    steps = threaded.loop.stats.steps
    assert steps == 60  # none while idle
    threaded.stop()
    assert threaded.loop.stats.steps == steps


def test_stopping_ends_what_still_runs_and_refuses_what_comes() -> None:
    threaded = Threaded()
    endless = (*range(1, 90), EOS)
    for number in range(50):
        threaded.loop.submit(spec(number, source=endless))
    threaded.stop()
    ended = [threaded.effects.get_nowait() for _ in range(threaded.effects.qsize())]
    assert set(endings(ended)) == set(range(50))
    with pytest.raises(Unavailable):
        threaded.loop.submit(spec(99))


def test_not_loaded_is_unavailable() -> None:
    loop = EngineLoop(
        EchoEngine([model()]), lambda models: Scheduler(models, Limits()), clock=lambda: 0.0, deliver=lambda _: None
    )
    with pytest.raises(Unavailable):
        loop.submit(spec(1))
    with pytest.raises(Unavailable):
        loop.adopt(newer())


def test_an_idle_thread_wakes_for_a_chore() -> None:
    threaded = Threaded()
    threaded.loop.adopt(newer()).result(WAIT_S)
    threaded.loop.submit(spec(1, model="n@1", source=(5, EOS)))
    end = threaded.effects.get(timeout=WAIT_S)
    assert isinstance(end, Ended) and end.ending.reason == "stop"
    threaded.loop.release("m@1").result(WAIT_S)
    threaded.loop.submit(spec(2, model="n@1", source=(*[5] * 50, EOS)))
    threaded.loop.release("n@1").result(WAIT_S)  # by the step that ends its last sequence, or the one after
    threaded.stop()


def test_chores_that_are_left_at_the_end_say_so() -> None:
    hand = ByHand()
    hand.loop.submit(spec(1, source=(*[5] * 90, EOS)))
    hand.loop.step()
    waiting = hand.loop.release("m@1")
    hand.loop.stop()
    hand.loop.run()
    assert isinstance(waiting.exception(), Unavailable)


class Warming(EchoEngine):
    """Counts the steps that keep it warm; every other one breaks."""

    warmed = 0

    def keep_warm(self) -> None:
        self.warmed += 1
        self.enough.set()
        if self.warmed % 2:
            raise RuntimeError("boom")

    def __init__(self) -> None:
        super().__init__([model(slots=2)])
        self.enough = threading.Event()


def test_an_idle_engine_is_kept_warm_if_that_is_wanted() -> None:
    engine = Warming()
    threaded = Threaded(engine, keep_warm_s=0.001)
    for _ in range(3):
        assert engine.enough.wait(WAIT_S)
        engine.enough.clear()
    threaded.loop.submit(spec(1, source=(5, EOS)))
    end = threaded.effects.get(timeout=WAIT_S)
    assert isinstance(end, Ended) and end.ending.reason == "stop"
    threaded.stop()
