"""Open-loop load: requests go out when they are due, however slow the answers are.

A closed loop waits for answers and so slows down with what it measures; users don't. `in_flight_max` protects this
process only: a request held back by it is late, and its latency still counts from the instant it was due.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from nearsay.client import Result
from nearsay.lab.report import Report, Sample, summarise
from nearsay.lab.schedule import Arrivals, arrivals
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError

Send = Callable[[int], Awaitable[Result]]  # the n-th request; raises NearsayError
Progress = Callable[[int, int, int], None]  # sent, ended, failed so far


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to offer, for how long. `warmup_s` at the start is sent but not reported."""

    rate_per_s: float
    duration_s: float
    arrivals: Arrivals = "poisson"
    seed: int = 0
    in_flight_max: int = 256
    requests_max: int = 1_000_000
    warmup_s: float = 0.0
    deadline_ms: float = 10_000.0


async def run_load(plan: LoadPlan, send: Send, tasks: Tasks, progress: Progress = lambda *_: None) -> Report:
    """Offer the plan's load and wait for the last answer. Each request ends by its own deadline, so this ends too."""
    return summarise(await offer(plan, send, tasks, progress), plan.deadline_ms)


async def offer(plan: LoadPlan, send: Send, tasks: Tasks, progress: Progress = lambda *_: None) -> list[Sample]:
    """`run_load`, as the samples that its report is made of: several runs can be summarised as one."""
    return await _Run(plan, send, tasks, progress).run()


class _Run:
    """State of one run; all of it belongs to the event loop."""

    def __init__(self, plan: LoadPlan, send: Send, tasks: Tasks, progress: Progress) -> None:
        self._plan = plan
        self._send = send
        self._tasks = tasks
        self._progress = progress
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self._permits = asyncio.Semaphore(plan.in_flight_max)
        self._samples: list[Sample] = []
        self._sent = 0
        self._failed = 0

    async def run(self) -> list[Sample]:
        running: set[asyncio.Task[None]] = set()
        for due_s in self._due():
            await asyncio.sleep(max(0.0, due_s - self._now()))
            await self._permits.acquire()
            task = self._tasks.spawn(self._one(self._sent, due_s), name=f"load {self._sent}")
            running.add(task)
            task.add_done_callback(running.discard)
            self._sent += 1
        await asyncio.gather(*running)
        warmup_s = self._plan.warmup_s
        return [sample.shifted(-warmup_s) for sample in self._samples if sample.due_s >= warmup_s]

    def _due(self) -> Iterator[float]:
        plan = self._plan
        rng = random.Random(plan.seed)
        due = arrivals(plan.arrivals, plan.rate_per_s, plan.warmup_s + plan.duration_s, rng)
        return itertools.islice(due, plan.requests_max)

    async def _one(self, number: int, due_s: float) -> None:
        sent_s = self._now()
        code, tier, stages_ms = "ok", "", dict[str, float]()
        try:
            result = await self._send(number)
            tier, stages_ms = result.translations[0].tier, result.stages_ms
        except NearsayError as error:
            code = error.code
            self._failed += 1
        finally:
            self._permits.release()
        self._samples.append(Sample(due_s, sent_s, self._now(), code, tier, stages_ms))
        self._progress(self._sent, len(self._samples), self._failed)

    def _now(self) -> float:
        return self._clock() - self._start
