"""The whole stack under seeded trouble: no answer lost or doubled, none wrong, nothing left held."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from nearsay.lab.virtual_loop import run
from nearsay.wire.errors import NearsayError
from nearsay.wire.messages import Translated, Update
from tests.sim.world import World, edge_url, origin_url, world

WORDS = ("the", "cat", "sat", "on", "mat", "and", "dog", "looked", "at", "weather", "is", "nice", "children", "garden")
TIERS = ("auto", "edge", "origin", "refine")
REQUESTS = 60
SPAN_S = 2.0
ALLOWED = {"edge_unavailable", "origin_unavailable", "link_lost", "unavailable", "deadline_exceeded", "overloaded"}


def random_text(world: World) -> str:
    """One to six sentences of known words, with gaps of all kinds."""
    sentences = [
        " ".join(world.rng.choices(WORDS, k=world.rng.randint(1, 12))).capitalize() + "."
        for _ in range(world.rng.randint(1, 6))
    ]
    return world.rng.choice(("", " ")) + "".join(s + world.rng.choice((" ", "\n\n", "  ")) for s in sentences)


def numbered(number: int) -> str:
    """A sentence like no other: equal ones would be translated once."""
    return " ".join(WORDS[int(digit)] for digit in f"{number:04d}" * 3).capitalize() + ". "


def check_answer(world: World, text: str, tier: str, answer: Translated) -> None:
    """Every segment is what its tier makes of its span, and the whole is their join with the source's own gaps."""
    [translation] = answer.translations
    at, joined = 0, ""
    for segment in translation.segments:
        source = text[segment.start : segment.end]
        expected = world.far(source) if segment.tier == "origin" else world.local(source)
        assert segment.text == expected, (source, segment)
        joined += text[at : segment.start] + segment.text
        at = segment.end
    assert translation.text == joined + text[at:]
    if tier == "edge":
        assert {segment.tier for segment in translation.segments} <= {"edge"}
    if tier == "origin":
        assert {segment.tier for segment in translation.segments} <= {"origin"}
    if tier == "refine" and any(segment.tier == "edge" for segment in translation.segments):
        assert translation.degraded and translation.degraded_reason
    assert all(value >= 0.0 for value in answer.stages_ms.values()), answer.stages_ms


async def one_request(world: World, ends: Counter[str]) -> None:
    rng = world.rng
    await asyncio.sleep(rng.uniform(0.0, SPAN_S))
    text, tier = random_text(world), rng.choice(TIERS)
    updates: list[Update] = []

    async def emit(update: Update) -> None:
        updates.append(update)

    call = world.translate(
        text,
        tier=tier,
        emit=emit if rng.random() < 0.5 else None,
        priority=rng.choice(("interactive", "batch")),
        deadline_ms=rng.choice((40.0, 500.0, 10_000.0)),
    )
    try:
        # Some clients leave early: that must cancel the work everywhere, at whatever point it is.
        async with asyncio.timeout(rng.choice((0.01, 0.05, None, None, None, None))):
            answer = await call
    except TimeoutError:
        ends["left"] += 1
    except NearsayError as error:
        assert error.code in ALLOWED, error
        ends[error.code] += 1
    else:
        ends["answered"] += 1
        check_answer(world, text, tier, answer)
        check_updates(world, text, updates, answer)


def check_updates(world: World, text: str, updates: list[Update], answer: Translated) -> None:
    """The last state of each segment is the answer's; revisions only rise."""
    if not updates:
        return
    last: dict[int, Update] = {}
    for update in updates:
        assert update.segment not in last or update.revision > last[update.segment].revision
        last[update.segment] = update
    [translation] = answer.translations
    shown = [last[number] for number in sorted(last)]
    assert all(update.kind == "segment" for update in shown)
    assert [update.text for update in shown] == [segment.text for segment in translation.segments]


async def trouble(world: World) -> None:
    """Edges and origins come and go, slow down, and come back."""
    rng = world.rng
    for _ in range(rng.randint(1, 5)):
        await asyncio.sleep(rng.uniform(0.0, SPAN_S / 2))
        kind = rng.choice(("edge", "origin", "slow", "distance"))
        number = rng.randrange(2)
        url = edge_url(number) if kind == "edge" else origin_url(number)
        if kind == "slow":
            world.slow[number] = rng.choice((1.0, 20.0))
        elif kind == "distance":
            world.net.delay_s[edge_url(number)] = rng.choice((0.001, 0.05))
        else:
            world.net.down(url)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            world.net.up(url)


def test_nothing_is_lost_whatever_breaks(models: Path, seed: int) -> None:
    async def main() -> Counter[str]:
        ends: Counter[str] = Counter()
        async with world(models, seed) as made:
            async with asyncio.TaskGroup() as group:
                group.create_task(trouble(made))
                for _ in range(REQUESTS):
                    group.create_task(one_request(made, ends))
            await asyncio.sleep(1.0)  # cancels on the wire arrive
            made.assert_empty()
        return ends

    ends = run(main())
    assert sum(ends.values()) == REQUESTS
    assert ends["answered"] > REQUESTS / 3, ends


def test_the_same_seed_gives_the_same_run(models: Path) -> None:
    async def main() -> list[float]:
        async with world(models, 7) as made:
            ends: Counter[str] = Counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(one_request(made, ends))
            return [made.now(), *(float(count) for _, count in sorted(ends.items()))]

    assert run(main()) == run(main())


def test_a_burst_is_served_by_all_edges(models: Path) -> None:
    async def main() -> list[int]:
        async with world(models, 1) as made:
            await asyncio.gather(*(made.translate("The cat sat" + " on" * n, tier="edge") for n in range(60)))
            return [
                sum(map(len, engine.batches))
                for edge in made.edges
                for engine in [edge._shelf.models[0]._lane.engine]
                if hasattr(engine, "batches")
            ]

    rows = run(main())
    assert min(rows) >= 10, rows


def test_a_cancel_storm_frees_every_slot_within_two_steps(models: Path) -> None:
    async def main() -> None:
        async with world(models, 2, origins=1) as made:
            texts = ["".join(numbered(20 * n + m) for m in range(20)) for n in range(10)]
            tasks = [asyncio.ensure_future(made.translate(text, tier="origin")) for text in texts]  # noqa: TID251
            await asyncio.sleep(0.03)
            assert made.origins[0].engine_loop.load_now.running == 8
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.02)  # two links of 1 ms each way, then at most two steps of 3 ms
            made.assert_empty()

    run(main())
