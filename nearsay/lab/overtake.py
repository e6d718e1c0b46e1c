"""Interactive texts that overtake bulk texts while those are being decoded: who came when, and who was served when.

All bulk texts are sent at once. When some of them show their first words, interactive texts follow one after another;
a few of their kind were translated before, with nothing else to do, for comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from nearsay.client import Done, Event
from nearsay.lab.report import Spread, spread
from nearsay.lab.sentences import SHORT_ENGLISH
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Priority

Stream = Callable[[str, Priority], AsyncGenerator[Event, None]]  # events of one text; raises NearsayError
BULK_SENTENCES = 24  # of our own; the others are for interactive texts, so that no text comes twice
BULK_STRIDES = (0, 5, 11, 13, 18)
BEGUN_MIN = 30  # bulk texts under way: fewer than an origin has slots for


class OvertakePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. begun_min: bulk texts that have shown something when the first interactive one goes out.

    gap_s: between interactive ones.
    """

    bulk: Sequence[str]
    interactive: Sequence[str]
    alone: Sequence[str]
    begun_min: int = BEGUN_MIN
    gap_s: float = 0.1


class Passage(msgspec.Struct, frozen=True):
    """One text: seconds from the start at which it was sent, showed something first (None: never), and ended.

    overtook: bulk texts that were being decoded when this one was sent, and ended later. code: "ok" or an error's.
    """

    priority: Priority
    number: int
    sent_s: float
    began_s: float | None
    ended_s: float
    code: str = "ok"
    overtook: int = 0

    @property
    def took_ms(self) -> float:
        return (self.ended_s - self.sent_s) * 1e3


class Overtaking(msgspec.Struct, frozen=True):
    """What came of it; passages in the order of their ends."""

    alone_ms: Spread
    interactive_ms: Spread
    bulk_ms: Spread
    passages: tuple[Passage, ...]

    @property
    def overtakers(self) -> int:
        """Interactive texts that overtook at least one bulk text."""
        return sum(passage.overtook > 0 for passage in self.passages)


def own_texts(bulk: int, interactive: int) -> OvertakePlan:
    """A plan of our own sentences: interactive texts of one, bulk texts of one that is as long as several."""
    short = SHORT_ENGLISH[BULK_SENTENCES:]
    half = len(short) // 2
    return OvertakePlan(
        bulk=[
            "; ".join(SHORT_ENGLISH[(number + stride) % BULK_SENTENCES][:-1] for stride in BULK_STRIDES) + "."
            for number in range(bulk)
        ],
        interactive=[short[number % half] for number in range(interactive)],
        alone=short[half:],
        begun_min=min(bulk, BEGUN_MIN),
    )


async def run_overtake(plan: OvertakePlan, stream: Stream, tasks: Tasks) -> Overtaking:
    """Play the plan. Each text ends by its own deadline, so this ends too."""
    return await _Run(plan, stream, tasks).run()


def overtaking(alone: Sequence[Passage], passages: Sequence[Passage]) -> Overtaking:
    """Who overtook how many."""
    bulk = [passage for passage in passages if passage.priority == "batch"]
    counted = [
        msgspec.structs.replace(passage, overtook=sum(_overtakes(passage, other) for other in bulk))
        for passage in passages
    ]
    return Overtaking(
        alone_ms=_spread(alone),
        interactive_ms=_spread([passage for passage in passages if passage.priority == "interactive"]),
        bulk_ms=_spread(bulk),
        passages=tuple(sorted(counted, key=lambda passage: passage.ended_s)),
    )


class _Run:
    """State of one run; all of it belongs to the event loop."""

    def __init__(self, plan: OvertakePlan, stream: Stream, tasks: Tasks) -> None:
        self._plan = plan
        self._stream = stream
        self._tasks = tasks
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self._begun = 0
        self._mid_run = asyncio.Event()

    async def run(self) -> Overtaking:
        plan = self._plan
        alone = [await self._one("interactive", number, text) for number, text in enumerate(plan.alone)]
        self._start = self._clock()
        bulk = [
            self._tasks.spawn(self._one("batch", number, text), name=f"bulk {number}")
            for number, text in enumerate(plan.bulk)
        ]
        ended = self._tasks.spawn(_all(bulk), name="all bulk")
        mid_run = self._tasks.spawn(self._mid_run.wait(), name="bulk under way")
        await asyncio.wait((mid_run, ended), return_when=asyncio.FIRST_COMPLETED)
        interactive = []
        for number, text in enumerate(plan.interactive):
            interactive.append(self._tasks.spawn(self._one("interactive", number, text), name=f"interactive {number}"))
            await asyncio.sleep(plan.gap_s)
        mid_run.cancel()
        return overtaking(alone, [*await ended, *await _all(interactive)])

    async def _one(self, priority: Priority, number: int, text: str) -> Passage:
        sent_s, began_s, code = self._now(), None, "ok"
        try:
            async with aclosing(self._stream(text, priority)) as events:
                async for event in events:
                    if began_s is None and not isinstance(event, Done):
                        began_s = self._now()
                        self._note_begun(priority)
        except NearsayError as error:
            code = error.code
        return Passage(priority, number, sent_s, began_s, self._now(), code)

    def _note_begun(self, priority: Priority) -> None:
        self._begun += priority == "batch"
        if self._begun >= self._plan.begun_min:
            self._mid_run.set()

    def _now(self) -> float:
        return self._clock() - self._start


async def _all(tasks: Sequence[asyncio.Task[Passage]]) -> list[Passage]:
    return await asyncio.gather(*tasks)


def _overtakes(passage: Passage, other: Passage) -> bool:
    under_way = other.began_s is not None and other.began_s <= passage.sent_s < other.ended_s
    return passage.priority == "interactive" and passage.code == "ok" and under_way and passage.ended_s < other.ended_s


def _spread(passages: Sequence[Passage]) -> Spread:
    return spread([passage.took_ms for passage in passages if passage.code == "ok"])
