"""What every tenant has used, added up over all processes that serve it.

Decides: which cell of the memory is whose. One row a process, and nobody writes another's row: so no lock is taken and
nothing is lost when a process dies in the middle; all read all rows. Other hosts together are one row more.
Must not know: limits, rates, time; what the memory is made of (bytes of this process, or mapped by several).
Invariants: cells only rise, but for those of requests in flight; a name has one slot in all processes; at most
SLOTS_MAX names are shared, later ones are counted by each process for itself (`crowded` says so).
Layout: SLOTS_MAX digests of 16 bytes, then float64[slot, field, row].
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from hashlib import blake2b

SLOTS_MAX = 4096
ALONE = nullcontext()
DIGEST_BYTES = 16
_EMPTY = bytes(DIGEST_BYTES)
_DIRECTORY_BYTES = SLOTS_MAX * DIGEST_BYTES


class Field(IntEnum):
    """One class's cells of one tenant, as one process writes them. Batch follows interactive."""

    CHARS = 0  # characters charged, ever
    CHARS_FULL_AT = 1  # when that bucket is full again, as this process sees it
    REQUESTS = 2
    REQUESTS_FULL_AT = 3
    IN_FLIGHT = 4


CLASS_FIELDS = len(Field)
FIELDS = 2 * CLASS_FIELDS
IN_FLIGHT_FIELDS = (Field.IN_FLIGHT, CLASS_FIELDS + Field.IN_FLIGHT)
USED_FIELDS = tuple(base + field for base in (0, CLASS_FIELDS) for field in (Field.CHARS, Field.REQUESTS))


def memory_bytes(rows: int) -> int:
    """Size of a ledger's memory, which starts as zeros."""
    return _DIRECTORY_BYTES + SLOTS_MAX * FIELDS * rows * 8


class Slot:
    """One tenant's cells, as the process of `row` sees them."""

    __slots__ = ("_base", "_cells", "_row", "_rows")

    def __init__(self, cells: memoryview[float], slot: int, *, rows: int, row: int) -> None:
        self._cells = cells
        self._base = slot * FIELDS * rows
        self._rows = rows
        self._row = row

    def add(self, field: int, amount: float) -> None:
        """Add to our own cell."""
        self._cells[self._base + field * self._rows + self._row] += amount

    def put(self, field: int, value: float) -> None:
        """Set our own cell."""
        self._cells[self._base + field * self._rows + self._row] = value

    def own(self, field: int) -> float:
        """Our own cell."""
        value: float = self._cells[self._base + field * self._rows + self._row]
        return value

    def total(self, field: int) -> float:
        """The sum over all processes and hosts."""
        start = self._base + field * self._rows
        return sum(self._cells[start : start + self._rows])

    def highest(self, field: int) -> float:
        """The largest cell of all processes."""
        start = self._base + field * self._rows
        return max(self._cells[start : start + self._rows])


class Ledger:
    """All tenants' slots in one memory."""

    def __init__(
        self,
        memory: bytearray | memoryview,
        *,
        rows: int,
        row: int,
        lock: AbstractContextManager[object] = ALONE,
    ) -> None:
        """`lock` is held while the directory is read or written: when a process meets a name for the first time."""
        assert 0 <= row < rows and len(memory) == memory_bytes(rows)
        view = memoryview(memory)
        self.rows = rows
        self.crowded = False
        self._row = row
        self._lock = lock
        self._directory = view[:_DIRECTORY_BYTES]
        self._cells = view[_DIRECTORY_BYTES:].cast("d")
        self._numbers: dict[bytes, int] = {}  # the directory as far as it was read: it only grows
        self._slots: dict[bytes, Slot] = {}

    def slot(self, name: str) -> Slot:
        """A tenant's slot."""
        return self.slot_of(blake2b(name.encode(), digest_size=DIGEST_BYTES).digest())

    def slot_of(self, digest: bytes) -> Slot:
        """The slot of a name by its digest."""
        slot = self._slots.get(digest)
        if slot is None:
            slot = self._slots[digest] = self._claim(digest)
        return slot

    def shared(self) -> dict[bytes, int]:
        """Number of each slot that any process has, by digest."""
        with self._lock:
            self._catch_up()
        return self._numbers

    def used(self, number: int, rows: range) -> list[float]:
        """A slot's cells by field, each added up over some rows."""
        first = number * FIELDS * self.rows
        starts = range(first, first + FIELDS * self.rows, self.rows)
        return [sum(self._cells[start + rows.start : start + rows.stop]) for start in starts]

    def left(self, row: int) -> None:
        """The process of a row has ended, and with it what it had in flight."""
        for number in self.shared().values():
            for field in IN_FLIGHT_FIELDS:
                self._cells[(number * FIELDS + field) * self.rows + row] = 0.0

    def _claim(self, digest: bytes) -> Slot:
        with self._lock:
            self._catch_up()
            number = self._numbers.get(digest, len(self._numbers))
            if number < SLOTS_MAX:
                self._directory[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = digest
                self._numbers[digest] = number
                return Slot(self._cells, number, rows=self.rows, row=self._row)
        self.crowded = True
        return Slot(memoryview(bytearray(FIELDS * 8)).cast("d"), 0, rows=1, row=0)

    def _catch_up(self) -> None:
        while (number := len(self._numbers)) < SLOTS_MAX:
            digest = bytes(self._directory[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])
            if digest == _EMPTY:
                break
            self._numbers[digest] = number
