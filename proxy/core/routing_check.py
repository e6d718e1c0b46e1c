"""Whether a routing config holds together: all that is wrong with it, each with its line.

Decides: names and types (routing_config.py has them), and the rules between values that types can't say.
Must not know: files, what is up, what was measured.
Invariants: every problem is told at once, but for a text that is no TOML; a text without problems gives a config that
routing needn't check again.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from proxy.core.routing_config import RoutingConfig
from proxy.core.toml_lines import Path, key_lines, line_of

BYTES_MAX = 4 << 20  # of the file
NAMED_MAX = 8  # regions that a problem lists
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # of regions and tenants: they stand in answers, headers and metrics
_VERSION = re.compile(r"[A-Za-z0-9._+-]{0,64}")
_PAIR = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]+)*-[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]+)*")
_COUNTRY = re.compile(r"[A-Z]{2}")
_KEY = re.compile(r"sha256:[0-9a-f]{64}")


class Problem(NamedTuple):
    """One mistake. `where` is the key with its tables: "regions.eu.edges[0]"."""

    line: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.where}: {self.what}" if self.where else f"line {self.line}: {self.what}"


class Routing(msgspec.Struct, frozen=True):
    """A config that holds together, and what it is called."""

    config: RoutingConfig
    hash: str  # of what it says: comments and spaces don't matter

    @property
    def label(self) -> str:
        """`version@hash`, or the hash alone: what answers carry."""
        return f"{self.config.version}@{self.hash}" if self.config.version else self.hash


class Mistakes(ValueError):
    """The config can't be used; `problems` in the order of lines."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems)
        super().__init__("; ".join(map(str, self.problems)))


def named(config: RoutingConfig) -> Routing:
    """A config with its hash."""
    return Routing(config, sha256(msgspec.json.encode(config)).hexdigest()[:8])


def read(text: str) -> Routing:
    """The config in a TOML text. Raises Mistakes, with every problem in it."""
    if len(text) > BYTES_MAX:
        raise Mistakes([Problem(1, "", f"more than {BYTES_MAX} characters")])
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise Mistakes([Problem(int(line[1]) if line else text.count("\n") + 1, "", str(error))]) from None
    found = [*_typed(values, RoutingConfig, ())]
    found += _between(values)
    if found:
        lines = key_lines(text)
        raise Mistakes([Problem(line_of(lines, path), _shown(path), what) for path, what in found])
    return named(msgspec.convert(values, RoutingConfig))


Found = tuple[Path, str]


# ---- names and types -------------------------------------------------------------------------------------------------


def _typed(value: Any, wanted: Any, path: Path) -> Iterator[Found]:
    """Problems of a value by its type, innermost first; nothing is said twice."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(value, dict) and isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        yield from _fields(value, wanted, path)
    elif isinstance(value, dict) and origin is dict:
        for key, item in value.items():
            yield from _typed(item, inner[1], (*path, key))
    elif isinstance(value, list) and origin is tuple and inner[1:] == (...,):
        for index, item in enumerate(value):
            yield from _typed(item, inner[0], (*path, index))
    elif isinstance(value, float) and not isfinite(value):
        yield path, "must be a finite number"
    else:
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            yield path, str(error).replace("`", "'")


def _fields(values: Mapping[str, Any], kind: type[msgspec.Struct], path: Path) -> Iterator[Found]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key in fields:
            yield from _typed(value, fields[key].type, (*path, key))
        else:
            yield (*path, key), f"no such key{_did_you_mean(key, fields)}"
    missing = (name for name, field in fields.items() if field.required and name not in values)
    yield from (((*path, name), "is missing") for name in missing)


# ---- rules between values --------------------------------------------------------------------------------------------


def _between(values: Mapping[str, Any]) -> Iterator[Found]:
    """Rules that types can't say, of whatever has the right shape; the rest has been told."""
    regions = _table(values, "regions")
    if values.get("regions") == {}:
        yield ("regions",), "at least one region is needed, such as [regions.eu]"
    default = values.get("default_region")
    if isinstance(default, str) and default and default not in regions:
        yield ("default_region",), _no_region(default, regions)
    version = values.get("version")
    if isinstance(version, str) and not _VERSION.fullmatch(version):
        yield ("version",), "at most 64 letters, digits and ._+- without spaces"
    yield from _regions(regions)
    yield from _pairs(_table(values, "pairs"), regions)
    yield from _residency(_table(values, "residency"), regions)
    yield from _tenants(_table(values, "tenants"), regions)


def _regions(regions: Mapping[str, Any]) -> Iterator[Found]:
    homes: dict[str, str] = {}
    for name, region in regions.items():
        path = ("regions", name)
        if not _NAME.fullmatch(name):
            yield path, "a region's name is made of a-z, 0-9, and _ . - after the first"
        if not isinstance(region, dict):
            continue
        if region.get("edges") == []:
            yield (*path, "edges"), "at least one address such as 'ws://10.0.0.1:8110/link' is needed"
        for index, edge in _strings(region, "edges"):
            if edge in homes:
                yield (*path, "edges", index), f"'{edge}' is in region '{homes[edge]}' already"
            homes.setdefault(edge, name)
            if not _is_url(edge, ("ws", "wss")):
                yield (*path, "edges", index), f"'{edge}' is no address like ws://host:port/link or wss://"
        for index, public in _strings(region, "public"):
            if not _is_url(public, ("http", "https", "ws", "wss")):
                yield (*path, "public", index), f"'{public}' is no address like https://host"
        yield from _location(region.get("location"), (*path, "location"))


def _location(location: Any, path: Path) -> Iterator[Found]:
    if not (isinstance(location, list) and len(location) == 2 and all(isinstance(x, int | float) for x in location)):
        return
    if not (-90 <= location[0] <= 90 and -180 <= location[1] <= 180):
        yield path, "latitude is -90 to 90 and longitude -180 to 180 degrees, in this order"


def _pairs(pairs: Mapping[str, Any], regions: Collection[str]) -> Iterator[Found]:
    for name, pair in pairs.items():
        if not _PAIR.fullmatch(name):
            yield ("pairs", name), "a pair is written like 'en-de'"
        if isinstance(pair, dict):
            yield from _known(pair, ("pairs", name), regions)


def _residency(residency: Mapping[str, Any], regions: Collection[str]) -> Iterator[Found]:
    for country, allowed in residency.items():
        if not _COUNTRY.fullmatch(country):
            hint = f"; did you mean '{country.upper()}'?" if _COUNTRY.fullmatch(country.upper()) else ""
            yield ("residency", country), f"a country is two capital letters (ISO 3166-1){hint}"
        if allowed == []:
            yield ("residency", country), "without a region none of its texts could be translated"
        yield from _known(residency, ("residency",), regions, country)


def _tenants(tenants: Mapping[str, Any], regions: Collection[str]) -> Iterator[Found]:
    owners: dict[str, str] = {}
    for name, tenant in tenants.items():
        path = ("tenants", name)
        if not _NAME.fullmatch(name):
            yield path, "a tenant's name is made of a-z, 0-9, and _ . - after the first"
        if not isinstance(tenant, dict):
            continue
        yield from _known(tenant, path, regions)
        for index, key in _strings(tenant, "keys"):
            if not _KEY.fullmatch(key):  # never shown: it may be a key in the clear
                yield (*path, "keys", index), "must be 'sha256:' and 64 hex digits"
            elif key in owners:
                yield (*path, "keys", index), f"tenant '{owners[key]}' has this key already"
            owners.setdefault(key, name)


def _known(table: Mapping[str, Any], path: Path, regions: Collection[str], key: str = "regions") -> Iterator[Found]:
    for index, region in _strings(table, key):
        if region not in regions:
            yield (*path, key, index), _no_region(region, regions)


def _no_region(given: str, regions: Collection[str]) -> str:
    near = _did_you_mean(given, regions)
    known = f"; there are: {', '.join(regions)}" if 0 < len(regions) <= NAMED_MAX else ""
    return f"there is no region '{given}'{near or known}"


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = values.get(key)
    return table if isinstance(table, dict) else {}


def _strings(table: Mapping[str, Any], key: str) -> list[tuple[int, str]]:
    items = table.get(key)
    return [(i, item) for i, item in enumerate(items) if isinstance(item, str)] if isinstance(items, list) else []


def _is_url(text: str, schemes: Collection[str]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that don't match
        return False


def _did_you_mean(given: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(given, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _shown(path: Path) -> str:
    """`regions.eu.edges[0]`."""
    shown = ""
    for part in path:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return shown
