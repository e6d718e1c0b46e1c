"""An MMDB file in either layout that people have, as flat records: `country_code`, `latitude`, `longitude`.

MaxMind's nested records are read by `geoip2`, whose models know them; the flat ones of free redistributions, on which
it raises TypeError, by `maxminddb`, which it stands on.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import geoip2.database
import geoip2.errors
import maxminddb

from nearsay.wire.hops import Address

Record = Mapping[str, object]
LookUp = Callable[[Address], Record]
NOTHING: Record = {}
SAMPLES = 16  # records looked at for their layout
_NESTED_KEYS = ("country", "registered_country", "location")


class DatabaseError(Exception):
    """The file can't be used; the message names it and says why."""


class Database:
    """One open file. `look_up` gives NOTHING for an address that it lacks, or that its damaged part holds."""

    def __init__(self, read: LookUp, close: Callable[[], None], metadata: maxminddb.reader.Metadata) -> None:
        self._read = read
        self.close = close
        self.kind = metadata.database_type
        self.built = datetime.fromtimestamp(metadata.build_epoch, UTC).date().isoformat()

    def look_up(self, address: Address) -> Record:
        """The record of an address."""
        try:
            return self._read(address)
        except (geoip2.errors.AddressNotFoundError, maxminddb.InvalidDatabaseError):
            return NOTHING
        except (ValueError, TypeError, AttributeError):  # IPv6 in an IPv4 file; a record of another shape
            return NOTHING


def open_database(path: Path) -> Database:
    """Open a private copy of a file: one that is then rewritten in place can't take mapped pages from under us.

    Raises DatabaseError for one that is missing, damaged or of something else.
    """
    try:
        with tempfile.NamedTemporaryFile(prefix="nearsay-", suffix=".mmdb") as copy:
            with path.open("rb") as file:
                shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            database = _nested(copy.name) if _is_nested(copy.name) else _flat(copy.name)
    except OSError as error:
        raise DatabaseError(f"{path.name}: {error.strerror or error}") from error
    except Exception as error:  # damaged files make the readers raise nearly anything, RecursionError included
        raise DatabaseError(f"{path.name} is no usable MMDB file: {type(error).__name__}") from error
    return database


def _is_nested(path: str) -> bool:
    """By its records, not by its type's name: that is the publisher's to choose.

    Read in Python: the C extension crashes the process when it walks through some damaged files.
    """
    with maxminddb.open_database(path, maxminddb.MODE_MMAP) as reader:
        records = [record for _, record in itertools.islice(reader, SAMPLES) if isinstance(record, dict)]
    return any(isinstance(record.get(key), dict) for record in records for key in _NESTED_KEYS)


def _nested(path: str) -> Database:
    reader = geoip2.database.Reader(path)
    ask = reader.city if "City" in reader.metadata().database_type else reader.country

    def read(address: Address) -> Record:
        found = ask(address)
        location = getattr(found, "location", None)
        return {
            "country_code": found.country.iso_code,
            "latitude": location.latitude if location is not None else None,
            "longitude": location.longitude if location is not None else None,
        }

    return Database(read, reader.close, reader.metadata())


def _flat(path: str) -> Database:
    reader = maxminddb.open_database(path)

    def read(address: Address) -> Record:
        record = reader.get(address)
        return record if isinstance(record, dict) else NOTHING

    return Database(read, reader.close, reader.metadata())
