"""What the other hosts have used, from what each of them says about itself on a board that all can read.

Decides: how much of what a host says is news, whether a host still lives, what is said about this one.
Must not know: Redis, clocks (`now` is an argument, monotonic seconds); no two hosts' clocks are compared.
Invariants: each host writes only its own line, so that none is lost by two writing at once; what a host used while it
could not be heard is never charged later (each keeps to the limits by itself then); at most HOSTS_MAX others are
known and SLOTS_MAX of their tenants.
How exact: what others used is seen one SYNC_S and two trips to the board later. Until then each host takes the bucket
to be as full as it last saw it, so that at most (hosts - 1) bursts too much are let in once, and paid off by all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.core.ledger import DIGEST_BYTES, IN_FLIGHT_FIELDS, SLOTS_MAX, USED_FIELDS, Ledger

SYNC_S = 0.1
HOSTS_MAX = 256
DEAD_S = 3.0  # without a new line: what the host had in flight counts no more
FORGET_S = 60.0  # and here its line is wiped off
GAP_BEATS = 20  # between two lines that were read: what lies between them is not charged
QUIET_BEATS = 600  # a tenant that used nothing for so long is left out of the line
_SAID_FIELDS = tuple(sorted((*USED_FIELDS, *IN_FLIGHT_FIELDS)))
_IN_FLIGHT_INDEXES = tuple(_SAID_FIELDS.index(cell) for cell in IN_FLIGHT_FIELDS)
_NOTHING = [0.0] * len(_SAID_FIELDS)
_VALUE_MAX = 2.0**53


class Line(msgspec.Struct, frozen=True, array_like=True):
    """What a host says: how often it has said something, and each tenant's cells in the order of `_SAID_FIELDS`."""

    beat: int
    tenants: dict[bytes, list[float]]


@dataclass(slots=True)
class _Host:
    young: bool  # known from its start, so that what it says first was used since
    heard: float = 0.0
    beat: int = 0
    used: dict[bytes, list[float]] = field(default_factory=dict)


class Hosts:
    """Keeps the ledger's row of all other hosts."""

    def __init__(self, ledger: Ledger, own_rows: range) -> None:
        """`ledger`: with the row of the others. `own_rows`: those of this host's processes."""
        self.malformed = 0  # lines that could not be read, ever
        self._ledger = ledger
        self._own_rows = own_rows
        self._beat = 0
        self._hosts: dict[bytes, _Host] = {}
        self._said: dict[bytes, tuple[list[float], int]] = {}  # cells, and the beat at which they last changed
        self._shown: set[bytes] = set()  # tenants of which others have something in flight

    def say(self) -> bytes:
        """This host's next line."""
        self._beat += 1
        tenants = {}
        for digest, number in self._ledger.shared().items():
            used = self._ledger.used(number, self._own_rows)
            cells = [used[cell] for cell in _SAID_FIELDS]
            before, changed = self._said.get(digest, ([], 0))
            changed = self._beat if cells != before and any(cells) else changed
            self._said[digest] = cells, changed
            if changed and (self._beat - changed < QUIET_BEATS or any(used[cell] for cell in IN_FLIGHT_FIELDS)):
                tenants[digest] = cells
        return msgspec.msgpack.encode(Line(self._beat, tenants))

    def hear(self, lines: Mapping[bytes, bytes], now: float) -> list[bytes]:
        """Take in all other hosts' lines; returns the hosts whose lines should be wiped off."""
        for name, said in lines.items():
            line = self._read(said)
            if line is None:
                continue
            host = self._hosts.get(name)
            if host is None and len(self._hosts) < HOSTS_MAX:
                host = self._hosts[name] = _Host(young=line.beat <= GAP_BEATS)
            if host is not None and line.beat > host.beat:
                self._news(host, line, now)
        dead = [name for name, host in self._hosts.items() if now - host.heard >= FORGET_S]
        for name in dead:
            del self._hosts[name]
        self._show_in_flight(now)
        return dead

    def _news(self, host: _Host, line: Line, now: float) -> None:
        charge = line.beat - host.beat <= GAP_BEATS
        for cells in host.used.values():
            for index in _IN_FLIGHT_INDEXES:
                cells[index] = 0.0  # who isn't named any more has nothing in flight
        for digest, cells in line.tenants.items():
            before = host.used.get(digest, _NOTHING if host.young else cells)
            for cell, old, new in zip(_SAID_FIELDS, before, cells, strict=True):
                if charge and cell in USED_FIELDS and new > old:
                    self._ledger.slot_of(digest).add(cell, new - old)
            if digest in host.used or len(host.used) < SLOTS_MAX:
                host.used[digest] = cells
        host.beat, host.heard = line.beat, now

    def _show_in_flight(self, now: float) -> None:
        alive = [host for host in self._hosts.values() if now - host.heard < DEAD_S]
        busy = {
            digest for host in alive for digest, cells in host.used.items() if any(cells[i] for i in _IN_FLIGHT_INDEXES)
        }
        for digest in busy | self._shown:
            slot = self._ledger.slot_of(digest)
            for cell, index in zip(IN_FLIGHT_FIELDS, _IN_FLIGHT_INDEXES, strict=True):
                slot.put(cell, sum(host.used[digest][index] for host in alive if digest in host.used))
        self._shown = busy

    def _read(self, said: bytes) -> Line | None:
        """A line, None for what is none: the board is not ours alone."""
        try:
            line = msgspec.msgpack.decode(said, type=Line)
        except msgspec.MsgspecError:
            line = Line(-1, {})
        good = line.beat > 0 and all(_is_entry(digest, cells) for digest, cells in line.tenants.items())
        self.malformed += not good
        return line if good else None


def _is_entry(digest: bytes, cells: list[float]) -> bool:
    return (
        len(digest) == DIGEST_BYTES
        and len(cells) == len(_SAID_FIELDS)
        and all(0 <= value <= _VALUE_MAX for value in cells)  # also no NaN
    )
