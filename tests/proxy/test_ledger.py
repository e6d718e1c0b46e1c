from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core import ledger as module
from proxy.core.ledger import FIELDS, SLOTS_MAX, Field, Ledger, memory_bytes

ROWS = 4


def processes(memory: bytearray, count: int = ROWS) -> list[Ledger]:
    return [Ledger(memory, rows=ROWS, row=row) for row in range(count)]


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.sampled_from("abc"), st.integers(0, FIELDS - 1)), max_size=40))
def test_all_processes_read_the_same_sums(additions: list[tuple[int, str, int]]) -> None:
    ledgers = processes(bytearray(memory_bytes(ROWS)))
    expected: dict[tuple[str, int], int] = {}
    for row, name, field in additions:
        ledgers[row].slot(name).add(field, 1.0)
        expected[name, field] = expected.get((name, field), 0) + 1
    for ledger in ledgers:
        assert {(n, f): ledger.slot(n).total(f) for n, f in expected} == expected
        assert len(ledger.shared()) == len({name for name, _ in expected})


def test_a_row_is_its_processes_own() -> None:
    first, second, *_ = processes(bytearray(memory_bytes(ROWS)))
    first.slot("a").put(Field.CHARS_FULL_AT, 7.0)
    second.slot("a").put(Field.CHARS_FULL_AT, 5.0)
    assert (first.slot("a").own(Field.CHARS_FULL_AT), second.slot("a").own(Field.CHARS_FULL_AT)) == (7.0, 5.0)
    assert second.slot("a").highest(Field.CHARS_FULL_AT) == 7.0
    [number] = first.shared().values()
    assert first.used(number, range(1, 3))[Field.CHARS_FULL_AT] == 5.0


def test_a_process_that_ended_has_nothing_in_flight_and_what_it_used_stays_used() -> None:
    first, second, *_ = processes(bytearray(memory_bytes(ROWS)))
    for ledger in (first, second):
        ledger.slot("a").add(Field.IN_FLIGHT, 3.0)
        ledger.slot("a").add(Field.CHARS, 10.0)
    first.left(1)
    assert (first.slot("a").total(Field.IN_FLIGHT), first.slot("a").total(Field.CHARS)) == (3.0, 20.0)


def test_names_past_the_bound_are_counted_by_each_process_for_itself() -> None:
    first, second, *_ = processes(bytearray(memory_bytes(ROWS)))
    for number in range(SLOTS_MAX):
        first.slot(f"tenant {number}")
    assert not first.crowded
    first.slot("one more").add(Field.CHARS, 1.0)
    assert first.crowded and first.slot("one more").total(Field.CHARS) == 1.0
    assert second.slot("one more").total(Field.CHARS) == 0.0 and second.crowded
    second.slot(f"tenant {SLOTS_MAX - 1}").add(Field.CHARS, 2.0)
    assert first.slot(f"tenant {SLOTS_MAX - 1}").total(Field.CHARS) == 2.0
    assert len(second.shared()) == SLOTS_MAX


def test_a_name_is_given_its_slot_under_the_lock() -> None:
    held: list[str] = []

    class Lock:
        def __enter__(self) -> None:
            held.append("taken")

        def __exit__(self, *_: object) -> None:
            held.append("given back")

    ledger = Ledger(bytearray(memory_bytes(ROWS)), rows=ROWS, row=0, lock=Lock())
    slot = ledger.slot("a")
    assert held == ["taken", "given back"]
    slot.add(Field.CHARS, 1.0)
    assert ledger.slot("a") is slot and slot.total(Field.CHARS) == 1.0
    assert len(held) == 2, "the way of a request takes none"


def test_a_cell_is_where_the_layout_says() -> None:
    memory = bytearray(memory_bytes(ROWS))
    Ledger(memory, rows=ROWS, row=2).slot("a").add(Field.REQUESTS, 1.5)
    cells = memoryview(memory)[module._DIRECTORY_BYTES :].cast("d")
    assert [index for index, value in enumerate(cells[: FIELDS * ROWS]) if value] == [Field.REQUESTS * ROWS + 2]
