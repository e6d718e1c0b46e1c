"""What batch work costs interactive work, and the reverse, on a clock that jumps: the policy alone, without a machine.

`python -m bench run mixed_load` measures the same with real processes.
"""

from __future__ import annotations

import math
import random
from functools import partial

from nearsay.wire.messages import Priority
from tests.origin.build import model
from tests.origin.simulation import Simulation

SLOTS = 16
SECONDS = 80.0
BULK = 2 * SLOTS
ROW_STEP_S = 0.0044  # of one row alone
WORDS = (4, 6, 8, 8, 10, 10, 12, 14, 18, 30)


class Mixed(Simulation):
    """Open-loop interactive arrivals at a tenth of what the engine could take one by one; batch texts come again as
    they are answered, so that there are always more than slots."""

    def __init__(self, seed: int, *, interactive: bool, bulk: bool, **limits: object) -> None:
        super().__init__(seed, model("a", slots=SLOTS), slow=0.0, checked=False, **limits)
        arrivals = random.Random(seed)
        due = 0.0
        while interactive and (due := due + arrivals.expovariate(0.1 / (12 * ROW_STEP_S))) < SECONDS:
            self.at(due, partial(self.ask, "interactive", arrivals.choice(WORDS)))
        for _ in range(BULK if bulk else 0):
            self.at(0.0, partial(self.ask, "batch", 24))
        self.run(until=SECONDS)

    def ask(self, priority: Priority, words: int) -> None:
        self.submit(priority, 600.0, words=words, draft=())

    def ended(self, number: int) -> None:
        if self.specs[number].priority == "batch" and self.now < SECONDS:
            self.at(self.now, partial(self.ask, "batch", 24))

    def p99_s(self) -> float:
        times = sorted(self.times("interactive"))
        return times[math.ceil(0.99 * len(times)) - 1]


def test_interactive_and_batch_work_hardly_notice_each_other() -> None:
    idle = Mixed(1, interactive=True, bulk=False)
    both = Mixed(1, interactive=True, bulk=True)
    alone = Mixed(1, interactive=False, bulk=True)
    assert len(both.times("interactive")) >= len(idle.times("interactive")) - 2 > 150
    assert both.p99_s() < 1.25 * idle.p99_s()
    assert len(both.times("batch")) > 0.85 * len(alone.times("batch"))
