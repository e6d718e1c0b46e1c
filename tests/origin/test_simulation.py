"""Seeded traffic on a jumping clock. A failing seed replays: `--sim-seed N --sim-seeds 1`."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest

from origin.core.batch_share import BatchRules
from origin.core.plan import Ended
from tests.origin.build import model
from tests.origin.simulation import Simulation


def weather(simulation: Simulation, seconds: float = 3.0) -> None:
    """Background traffic, bursts, floods of batch work, cancel storms, and deadlines from hopeless to generous."""
    chance = simulation.chance
    tenants = [f"t{number}" for number in range(chance.randint(1, 4))]

    def one(batch: bool) -> None:
        budget_s = chance.choice((0.02, 0.2, 2.0, 30.0))
        number = simulation.submit(
            "batch" if batch else "interactive",
            budget_s,
            tenant=chance.choice(tenants),
            width=chance.choice((1, 1, 1, 1, 2, 4)),
        )
        if chance.random() < 0.1:
            simulation.at(simulation.now + chance.uniform(0.0, 0.2), lambda: simulation.cancel(number))

    def several(count: int, batch: float) -> None:
        for _ in range(count):
            one(chance.random() < batch)

    def storm() -> None:
        for number in simulation.live():
            if chance.random() < 0.7:
                simulation.cancel(number)

    for _ in range(chance.randint(20, 60)):
        simulation.at(chance.uniform(0.0, seconds), lambda: one(False))
    for _ in range(chance.randint(1, 3)):
        simulation.at(chance.uniform(0.0, seconds), lambda: several(chance.randint(5, 25), 0.3))
    for _ in range(chance.randint(0, 2)):
        simulation.at(chance.uniform(0.0, seconds), lambda: several(chance.randint(10, 50), 1.0))
    for _ in range(chance.randint(0, 2)):
        simulation.at(chance.uniform(0.0, seconds), storm)


def test_nobody_is_lost_or_answered_twice_in_any_weather(sim_seed: int) -> None:
    chance_of_mode = ("off", "dark", "on")[sim_seed % 3]
    simulation = Simulation(
        sim_seed,
        admission=chance_of_mode,
        queue_max=20,
        batch_queue_max=40,
        tenants_max=3,
        tenant_share_max=1.0 if sim_seed % 2 else 0.6,
        batch=BatchRules(evictions_max=sim_seed % 4),
    )
    weather(simulation)
    simulation.run()
    simulation.check_answers()
    assert simulation.scheduler.load().slots_free == 10 and len(simulation.scheduler) == 0


def test_broken_passes_cost_time_and_only_the_unlucky_an_answer(sim_seed: int) -> None:
    """One step in fifty raises: only who meets two of them fails."""
    simulation = Simulation(sim_seed, broken=0.02, batch=BatchRules(evictions_max=sim_seed % 4))
    weather(simulation)
    simulation.run()
    simulation.check_answers()
    failed = [n for n, end in simulation.ends.items() if isinstance(end, Ended) and end.ending.reason == "failed"]
    assert all(simulation.hits[number] == 2 for number in failed)
    assert len(failed) <= sum(hits > 1 for hits in simulation.hits.values())
    assert simulation.scheduler.load().slots_free == 10 and len(simulation.scheduler) == 0


def test_batch_work_never_starves_beside_a_steady_interactive_load(sim_seed: int) -> None:
    """Callers who ask again as soon as they are answered hold all slots; bulk texts wait with a long deadline."""
    simulation = Simulation(sim_seed, model("a", slots=4), slow=0.0)
    callers = {simulation.submit("interactive", 10.0) for _ in range(8)}
    bulk = [simulation.submit("batch", 60.0, words=8) for _ in range(6)]
    while (live := set(simulation.live())) & set(bulk):
        callers = (callers & live) | {simulation.submit("interactive", 10.0) for _ in range(8 - len(callers & live))}
        simulation.run(until=simulation.now + 0.003)
    assert set(simulation.reasons("batch")) == {"stop"}
    assert max(simulation.times("batch")) < 10.0
    took_on = [now for now, plan in simulation.plans if {row.sequence for row in plan.batches[0].rows} & set(bulk)]
    gaps = [after - before for before, after in zip([0.0, *took_on], took_on, strict=False)]
    assert max(gaps) < 0.25 + 0.15  # the wait, and the longest until a slot is free


def test_a_bulk_run_hardly_slows_interactive_work(sim_seed: int) -> None:
    def mean_s(bulk: int) -> float:
        simulation = Simulation(sim_seed, model("a", slots=16), slow=0.0)
        for _ in range(bulk):
            simulation.submit("batch", 600.0, words=15, draft=())
        for number in range(12):
            simulation.at(0.5 + number * 0.2, lambda: simulation.submit("interactive", 10.0, words=12, draft=()))
        simulation.run()
        assert set(simulation.reasons("interactive")) == {"stop"}
        if bulk:
            assert set(simulation.reasons("batch")) == {"stop"}
        return mean(simulation.times("interactive"))

    assert mean_s(60) < 1.6 * mean_s(0)


def test_tenants_share_what_there_is(sim_seed: int) -> None:
    simulation = Simulation(sim_seed, model("a", slots=4), slow=0.0)
    for number in range(240):
        simulation.submit("batch", 600.0, tenant="loud" if number % 6 else "quiet", draft=())
    simulation.run(until=1.0)
    served: Counter[str] = Counter()
    for number in simulation.ends:
        served[simulation.specs[number].tenant] += len(simulation.specs[number].source)
    assert served["quiet"] > 0.4 * served.total()


@pytest.mark.parametrize("admission", ["dark", "on"])
def test_turning_away_the_hopeless_gets_more_answers_out_in_time(admission: str, sim_seed: int) -> None:
    """Twice the traffic that can be served, with deadlines: what is let in is served."""
    simulation = Simulation(sim_seed, model("a", slots=4), slow=0.0, admission=admission)
    for number in range(150):
        simulation.at(number * 0.01, lambda: simulation.submit("interactive", 0.5, words=15, draft=(), stream=False))
    simulation.run()
    simulation.check_answers()
    counts, reasons = simulation.scheduler.counts, Counter(simulation.reasons("interactive"))
    if admission == "on":
        assert reasons["stop"] > 0.3 * 150 and reasons["overloaded"] > 0.2 * 150
        assert reasons["expired"] <= 0.15 * 150
    else:
        assert reasons["expired"] > 0.2 * 150
        assert counts.forecast_late >= 0.7 * reasons["expired"]
        assert counts.forecast_late_in_time <= 0.25 * counts.forecast_late
