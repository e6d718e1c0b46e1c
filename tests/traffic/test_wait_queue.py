from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.traffic.mode import Mode
from nearsay.traffic.wait_queue import QueueRules, WaitQueue

RULES = QueueRules(waiting_max=8, quantum=256)


def queue(rules: QueueRules = RULES) -> WaitQueue[str]:
    return WaitQueue(rules)


def add(waiting: WaitQueue[str], *names: str, tenant: str = "", interactive: bool = True, cost: int = 50) -> list[str]:
    """The names given up. A name's tenant is its first letter."""
    given = [waiting.add(n, tenant=tenant or n[0], interactive=interactive, cost=cost, now=0.0) for n in names]
    return [name for name in given if name is not None]


def take(waiting: WaitQueue[str], count: int, now: float = 0.0) -> list[str]:
    served = [waiting.take(lambda _: True, now).served for _ in range(count)]
    return [name for name in served if name is not None]


def test_tenants_take_turns_by_cost() -> None:
    waiting = queue(QueueRules(waiting_max=100, quantum=100, cost_min=1))
    add(waiting, *(f"a{number}" for number in range(40)), cost=100)
    add(waiting, *(f"b{number}" for number in range(40)), cost=50)
    served = Counter(name[0] for name in take(waiting, 30))
    assert served == {"a": 10, "b": 20}


def test_one_tenants_flood_lets_anothers_request_through_at_its_next_turn() -> None:
    waiting = queue(QueueRules(waiting_max=1000))
    add(waiting, *(f"a{number}" for number in range(500)))
    add(waiting, "b0")
    assert "b0" in take(waiting, 6)


def test_interactive_goes_before_batch_and_order_is_kept() -> None:
    waiting = queue()
    add(waiting, "a1", "a2", interactive=False)
    add(waiting, "b1", "b2")
    assert take(waiting, 9) == ["b1", "b2", "a1", "a2"]
    assert len(waiting) == 0


def test_a_full_queue_gives_up_the_newest_of_the_longest() -> None:
    waiting = queue()
    assert add(waiting, *(f"a{number}" for number in range(8))) == []
    assert add(waiting, "a8") == ["a8"]  # its own tenant's flood
    assert add(waiting, "b0", "b1") == ["a7", "a6"]
    assert add(waiting, "b2", "b3", "c0") == ["a5", "a4", "a3"]  # a3, b4, c1
    assert add(waiting, "b4") == ["b4"]
    assert len(waiting) == 8
    assert waiting.give_up("c", waiting=3) is None  # it has as many as anybody


def test_what_no_peer_can_take_stands_back_without_losing_its_place() -> None:
    waiting = queue()
    for name, kind in (("a1", "pt"), ("a2", "de"), ("a3", "pt"), ("b1", "pt")):
        waiting.add(name, tenant=name[0], interactive=True, cost=10, kind=kind, now=0.0)
    assert waiting.take(lambda name: name == "a2", 0.0).served == "a2"
    assert waiting.take(lambda _: False, 0.0).served is None
    assert take(waiting, 9) == ["a1", "a3", "b1"]


def test_each_tenants_queue_sheds_for_itself() -> None:
    modes: tuple[Mode, ...] = ("on", "dark", "off")
    for mode in modes:
        waiting: WaitQueue[str] = WaitQueue(QueueRules(waiting_max=5000, shed=mode, target_ms=10.0, interval_ms=100.0))
        shed: list[str] = []
        dark = 0
        served: list[str] = []
        for number in range(2000):  # `a` brings two for each that is served, `b` one in ten
            now = number / 1000
            waiting.add(f"a{2 * number}", tenant="a", interactive=True, cost=64, now=now)
            waiting.add(f"a{2 * number + 1}", tenant="a", interactive=True, cost=64, now=now)
            if number % 10 == 0:
                waiting.add(f"b{number}", tenant="b", interactive=True, cost=64, now=now)
            left = waiting.take(lambda _: True, now)
            shed += left.shed
            dark += left.shed_dark
            served += [left.served] if left.served else []
        assert len(served) == 2000
        assert sum(name.startswith("b") for name in served) >= 195
        assert not any(name.startswith("b") for name in shed)
        assert (len(shed) > 1500, dark > 1500) == (mode == "on", mode == "dark"), mode


def _any(_: int) -> bool:
    return True


def _even(item: int) -> bool:
    return item % 2 == 0


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_every_item_leaves_once_and_the_bound_holds(seed: int, steps: int) -> None:
    random = Random(seed)
    waiting: WaitQueue[int] = WaitQueue(QueueRules(waiting_max=6, shed="on", target_ms=10.0, interval_ms=20.0))
    left: Counter[int] = Counter()
    now, added = 0.0, 0
    for _ in range(steps):
        now += random.random() * 0.02
        match random.randrange(3):
            case 0 | 1 if random.random() < 0.7:
                given_up = waiting.add(
                    added,
                    tenant=random.choice("abc"),
                    interactive=random.random() < 0.7,
                    cost=random.randrange(1, 100_000),
                    kind=random.randrange(2),
                    now=now,
                )
                added += 1
                left.update([given_up] if given_up is not None else [])
            case 2 if added:
                item = random.randrange(added)
                was_there = item in list(waiting)
                assert waiting.discard(item) is was_there
                left.update([item] if was_there else [])
            case _:
                taken = waiting.take(random.choice([_any, _even]), now)
                left.update([*taken.shed, *([taken.served] if taken.served is not None else [])])
        assert len(waiting) == len(list(waiting)) <= 6
        assert not set(waiting) & set(left)
    while (taken := waiting.take(_any, now)).served is not None or taken.shed:
        left.update([*taken.shed, *([taken.served] if taken.served is not None else [])])
    assert len(waiting) == 0
    assert left == Counter(range(added))
