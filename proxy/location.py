"""Where a client is: address to country and coordinates, from an MMDB file that may change while we run.

A database is a help, never a need: without one, with a damaged one, or for an address that it lacks, the place is
unknown and the default region serves. The file is looked at by a task; lookups read memory and take microseconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from nearsay.wire.hops import Address
from proxy.core.country_points import country_point
from proxy.mmdb import Database, DatabaseError, open_database

Source = Literal["city", "country", "private", "unknown"]
PLACES_MAX = 16_384  # addresses remembered
WATCH_S = 5.0

_log = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True):
    """Where an address is. `source` says how well that is known: a country's `location` is where most people live."""

    country: str = ""  # ISO 3166-1 alpha-2
    location: tuple[float, float] | None = None  # latitude, longitude in degrees
    source: Source = "unknown"


UNKNOWN = Place()
PRIVATE = Place(source="private")


class Locator:
    """Owner of the open database."""

    def __init__(self, path: Path | None, *, places_max: int = PLACES_MAX) -> None:
        self._path = path
        self._places_max = places_max
        self._places: OrderedDict[Address, Place] = OrderedDict()
        self._database: Database | None = None
        self._seen: tuple[int, ...] | None = ()  # the file that was last opened, or tried; None = there was none
        self._warned = False

    @property
    def wanted(self) -> bool:
        """Whether there should be a database."""
        return self._path is not None

    @property
    def ready(self) -> bool:
        """Whether there is a database."""
        return self._database is not None

    def locate(self, address: Address | None) -> Place:
        """The place of a client's address."""
        if address is None or self._path is None:
            return UNKNOWN
        place = self._places.get(address)
        if place is not None:
            self._places.move_to_end(address)
            return place
        if not address.is_global:
            return PRIVATE
        if self._database is None:
            return UNKNOWN
        place = self._places[address] = place_of(self._database.look_up(address))
        if len(self._places) > self._places_max:
            self._places.popitem(last=False)
        return place

    async def watch(self, every_s: float = WATCH_S) -> None:
        """Open the file whenever it has changed, for ever."""
        while self._path is not None:
            await self.refresh()
            await asyncio.sleep(every_s)

    async def refresh(self) -> None:
        """Open the file now if it isn't the one that is open. One that can't be opened leaves the old one in force."""
        if self._path is None:
            return
        seen = _identity(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            database = await asyncio.to_thread(open_database, self._path)
        except DatabaseError as error:
            self._warn(str(error))
            return
        previous, self._database = self._database, database
        self._places.clear()
        self._warned = False
        if previous is not None:
            previous.close()
        _log.info("%s: %s, built %s", self._path.name, database.kind, database.built)

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _warn(self, problem: str) -> None:
        """Once until a file opens again: a replaced file that is bad, too, is no news."""
        if not self._warned:
            in_force = "the one opened before stays" if self._database else "clients get the default region"
            _log.warning("%s; %s", problem, in_force)
        self._warned = True


def place_of(record: Mapping[str, object]) -> Place:
    """The place in a flat record. A country alone stands for the point in it that is near most of its people."""
    country = record.get("country_code")
    country = country.upper() if isinstance(country, str) and len(country) == 2 and country.isalpha() else ""
    location = _degrees(record.get("latitude"), 90.0), _degrees(record.get("longitude"), 180.0)
    if location[0] is not None and location[1] is not None:
        return Place(country, (location[0], location[1]), "city")
    if not country:
        return UNKNOWN
    return Place(country, country_point(country), "country")


def _degrees(value: object, most: float) -> float | None:
    return float(value) if isinstance(value, int | float) and -most <= value <= most else None


def _identity(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is replaced or rewritten."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
