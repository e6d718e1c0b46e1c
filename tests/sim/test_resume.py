"""Streams whose edge is lost: another one goes on, and the client's text is what an unbroken answer would have been."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from nearsay.lab.virtual_loop import run
from nearsay.wire.messages import Update
from proxy.core.limits import AttemptLimits
from tests.sim.test_world import TIERS, check_answer, check_updates, numbered
from tests.sim.world import World, edge_url, world

# Cuts are what is tested here, not how often a request may be tried.
STUBBORN = AttemptLimits(attempts_max=50, retry_floor_per_s=1000.0)
STREAMS = 12


def text_of(number: int) -> str:
    return "".join(numbered(40 * number + sentence) for sentence in range(30)).strip() + "\n"


class Reader:
    """A client that shows what it is sent: it appends, replaces by revision, and begins anew when it is told to."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.shown: dict[tuple[int, int], Update] = {}
        self.revisions: dict[tuple[int, int], int] = {}
        self.restarts = 0

    async def emit(self, update: Update) -> None:
        self.updates.append(update)
        if update.kind == "restart":
            self.restarts += 1
            self.shown.clear()
            return
        place = update.item, update.segment
        assert update.revision == self.revisions.get(place, -1) + 1, "a hole, or a step back"
        self.revisions[place] = update.revision
        before = self.shown.get(place)
        assert before is None or before.kind != "segment", "a final segment came again"
        if before is not None and before.kind == update.kind == "partial":
            assert update.text.startswith(before.text), "words that stood have changed"
        self.shown[place] = update

    @property
    def text(self) -> str:
        return "".join(update.gap + update.text for _, update in sorted(self.shown.items()))


async def cuts(made: World, count: int) -> None:
    """Edges are lost one after the other, at any time; two of three are always up."""
    for _ in range(count):
        await asyncio.sleep(made.rng.uniform(0.0, 0.1))
        url = edge_url(made.rng.randrange(3))
        made.net.down(url)
        await asyncio.sleep(made.rng.uniform(0.0, 0.1))
        made.net.up(url)


async def one_stream(made: World, number: int, ends: Counter[str]) -> None:
    await asyncio.sleep(made.rng.uniform(0.0, 0.5))
    reader, text, tier = Reader(), text_of(number), made.rng.choice(TIERS)
    answer = await made.translate(text, tier=tier, emit=reader.emit)
    check_answer(made, text, tier, answer)
    check_updates(made, text, reader.updates, answer)
    assert reader.restarts == 0
    assert reader.text + "\n" == answer.translations[0].text
    ends["answered"] += 1


def test_a_cut_stream_goes_on_elsewhere_and_reads_as_if_it_had_not_been(models: Path, seed: int) -> None:
    async def main() -> tuple[Counter[str], float]:
        ends: Counter[str] = Counter()
        async with world(models, seed, attempts=STUBBORN) as made:
            made.slow = dict.fromkeys(range(3), 10.0)
            async with asyncio.TaskGroup() as group:
                group.create_task(cuts(made, 15))
                for number in range(STREAMS):
                    group.create_task(one_stream(made, number, ends))
            await asyncio.sleep(2.0)  # cancels on the wire arrive, grace times pass
            made.assert_empty()
            counters = made.proxy.metrics.snapshot()["counters"]
        return ends, sum(value for name, value in counters.items() if name.startswith("retries"))

    ends, retries = run(main())
    assert ends["answered"] == STREAMS
    assert retries > 0, "nothing was cut"


def test_what_is_done_is_not_done_again(models: Path) -> None:
    async def main() -> tuple[int, int]:
        async with world(models, 3, edges=2, origins=0, attempts=STUBBORN) as made:
            made.slow = dict.fromkeys(range(2), 4.0)
            engines = [edge._shelf.models[0]._lane.engine for edge in made.edges]
            warm_up = sum(map(len, engines[0].batches))  # type: ignore[attr-defined]
            reader, text = Reader(), text_of(0) + text_of(1)  # more than a batch
            request = made.tasks.spawn(made.translate(text, tier="edge", emit=reader.emit), name="request")
            while not reader.shown:  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.001)
            shown = len(reader.shown)
            [busy] = [number for number, edge in enumerate(made.edges) if edge.links.in_flight]
            made.net.down(edge_url(busy))
            await request
            return shown, sum(map(len, engines[1 - busy].batches)) - warm_up  # type: ignore[attr-defined]

    shown, rows = run(main())
    assert 0 < rows == 60 - shown
