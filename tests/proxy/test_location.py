"""Databases of both layouts, files that come, change, break and go, and what is made of each address."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from _maxminddb_geolite2 import geolite2_database
from hypothesis import given
from hypothesis import strategies as st
from mmdb_writer import MMDBWriter
from netaddr import IPSet

from nearsay.wire.hops import Address
from proxy.core.country_points import COUNTRY_POINTS, country_point
from proxy.location import PRIVATE, UNKNOWN, Locator, Place, place_of
from proxy.mmdb import DatabaseError, open_database

BERLIN, SYDNEY = (52.52, 13.4), (-33.87, 151.2)
FLAT = {"20.0.0.0/8": {"country_code": "DE"}, "2a00::/12": {"country_code": "pt"}}
FLAT_CITY = {"20.0.0.0/8": {"country_code": "DE", "latitude": BERLIN[0], "longitude": BERLIN[1], "city": "Berlin"}}
NESTED = {"20.0.0.0/8": {"country": {"iso_code": "DE", "names": {"en": "Germany"}}}}
NESTED_CITY = {
    "20.0.0.0/8": {
        "country": {"iso_code": "DE"},
        "city": {"names": {"en": "Berlin"}},
        "location": {"latitude": BERLIN[0], "longitude": BERLIN[1], "accuracy_radius": 20},
    }
}


def ip(text: str) -> Address:
    return ipaddress.ip_address(text)


def write(path: Path, networks: Mapping[str, object], kind: str, *, version: int = 6) -> Path:
    """A database file, put in place at once as a careful program does."""
    writer = MMDBWriter(version, kind, ipv4_compatible=version == 6, float_type="f64")
    for network, record in networks.items():
        writer.insert_network(IPSet([network]), record)
    part = path.with_suffix(".part")
    writer.to_db_file(str(part))
    part.replace(path)
    return path


@pytest.mark.parametrize(
    ("networks", "kind", "place"),
    [
        (FLAT, "country ipvAll", Place("DE", country_point("DE"), "country")),
        (FLAT_CITY, "city ipvAll", Place("DE", BERLIN, "city")),
        (NESTED, "GeoLite2-Country", Place("DE", country_point("DE"), "country")),
        (NESTED_CITY, "GeoLite2-City", Place("DE", BERLIN, "city")),
        (NESTED_CITY, "DBIP-City-Lite", Place("DE", BERLIN, "city")),
        (FLAT, "Country of some redistribution", Place("DE", country_point("DE"), "country")),
    ],
)
async def test_both_layouts(tmp_path: Path, networks: Mapping[str, object], kind: str, place: Place) -> None:
    locator = Locator(write(tmp_path / "geo.mmdb", networks, kind))
    await locator.refresh()
    assert locator.ready
    assert locator.locate(ip("20.1.2.3")) == place
    assert locator.locate(ip("21.1.2.3")) == UNKNOWN
    locator.close()


async def test_the_real_layout_of_maxmind() -> None:
    """Real addresses in a real file, of 2018: places that don't move."""
    database = geolite2_database()
    locator = Locator(Path(database))
    await locator.refresh()
    near = {
        "193.0.6.139": ("NL", (52.4, 4.9)),
        "81.2.69.142": ("GB", (51.5, -0.2)),
        "133.11.0.1": ("JP", (35.7, 139.7)),
    }
    for address, (country, (latitude, longitude)) in near.items():
        place = locator.locate(ip(address))
        assert (place.country, place.source) == (country, "city"), address
        assert place.location is not None
        assert abs(place.location[0] - latitude) < 1.5 and abs(place.location[1] - longitude) < 1.5, place
    assert locator.locate(ip("2001:67c:2e8::1")).country == "NL"
    locator.close()


async def test_ipv6_in_a_file_of_ipv4_is_unknown(tmp_path: Path) -> None:
    locator = Locator(write(tmp_path / "geo.mmdb", {"20.0.0.0/8": {"country_code": "DE"}}, "country ipv4", version=4))
    await locator.refresh()
    assert locator.locate(ip("20.1.2.3")).country == "DE"
    assert locator.locate(ip("2a00::1")) == UNKNOWN


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "::1", "fe80::1", "fd00::1", "0.0.0.0"],
)
async def test_private_addresses_are_never_looked_up(tmp_path: Path, address: str) -> None:
    networks = {"0.0.0.0/1": {"country_code": "XX"}, "fc00::/6": {"country_code": "XX"}}
    locator = Locator(write(tmp_path / "geo.mmdb", networks, "country"))
    await locator.refresh()
    assert locator.locate(ip(address)) == PRIVATE


async def test_without_a_file_every_place_is_unknown() -> None:
    locator = Locator(None)
    await locator.watch()
    assert locator.locate(ip("20.1.2.3")) == UNKNOWN and locator.locate(None) == UNKNOWN


async def test_a_file_is_swapped_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "geo.mmdb"
    locator = Locator(write(path, FLAT, "country"))
    await locator.refresh()
    assert locator.locate(ip("20.1.2.3")).country == "DE"
    write(path, {"20.0.0.0/8": {"country_code": "AU"}}, "country")
    assert locator.locate(ip("20.1.2.3")).country == "DE", "not before it is looked at"
    await locator.refresh()
    assert locator.locate(ip("20.1.2.3")).country == "AU", "nor remembered from the old one"


async def test_one_warning_and_the_old_file_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "geo.mmdb"
    locator = Locator(path)
    with caplog.at_level(logging.WARNING):
        for content in (None, b"", b"no database", write(tmp_path / "whole.mmdb", FLAT, "country").read_bytes()[:300]):
            if content is not None:
                path.write_bytes(content)
            await locator.refresh()
            assert locator.locate(ip("20.1.2.3")) == UNKNOWN
        assert [record.getMessage() for record in caplog.records] == [
            "geo.mmdb: No such file or directory; clients get the default region"
        ]
        write(path, FLAT, "country")
        await locator.refresh()
        assert locator.locate(ip("20.1.2.3")).country == "DE"
        for content in (b"broken", b"broken again"):
            path.write_bytes(content)
            await locator.refresh()
        path.unlink()
        await locator.refresh()
        assert locator.locate(ip("20.1.2.3")).country == "DE", "the last good one"
        assert len(caplog.records) == 2 and "the one opened before stays" in caplog.records[1].getMessage()


async def test_a_file_rewritten_in_place_does_not_pull_the_pages_away(tmp_path: Path) -> None:
    path = write(tmp_path / "geo.mmdb", {f"{n}.0.0.0/8": {"country_code": "DE"} for n in range(20, 100)}, "country")
    locator = Locator(path)
    await locator.refresh()
    os.truncate(path, 0)
    assert locator.locate(ip("99.1.2.3")).country == "DE"


async def test_an_unchanged_file_is_not_opened_again(tmp_path: Path) -> None:
    locator = Locator(write(tmp_path / "geo.mmdb", FLAT, "country"))
    await locator.refresh()
    before = locator._database
    await locator.refresh()
    assert locator._database is before


async def test_places_remembered_are_bounded(tmp_path: Path) -> None:
    locator = Locator(write(tmp_path / "geo.mmdb", FLAT, "country"), places_max=3)
    await locator.refresh()
    for n in (1, 2, 3, 1, 4):
        locator.locate(ip(f"20.0.0.{n}"))
    assert [str(address) for address in locator._places] == ["20.0.0.3", "20.0.0.1", "20.0.0.4"]


@given(st.binary(max_size=400))
def test_any_bytes_are_a_database_or_our_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.mmdb"
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match=r"any\.mmdb"):
        open_database(path)


@given(st.data())
def test_a_damaged_database_raises_no_other(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole-nested.mmdb"
    if not whole.exists():
        write(whole, NESTED_CITY | {"2a00::/12": {"country": {"iso_code": "PT"}}}, "GeoLite2-City")
    body = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = folder / "damaged.mmdb"
    damaged.write_bytes(body)
    try:
        database = open_database(damaged)
    except DatabaseError:
        return
    for address in ("20.1.2.3", "21.0.0.1", "2a00::1"):
        assert isinstance(place_of(database.look_up(ip(address))), Place)
    database.close()


@pytest.mark.parametrize(
    "record",
    [{}, {"country_code": "DEU"}, {"country_code": 7}, {"country_code": ""}, {"latitude": 91.0, "longitude": 0.0}],
)
def test_records_that_say_nothing(record: dict[str, object]) -> None:
    assert place_of(record) == UNKNOWN


def test_a_country_nobody_knows_has_no_point() -> None:
    assert place_of({"country_code": "ZZ"}) == Place("ZZ", None, "country")
    assert len(COUNTRY_POINTS) == 250
    assert all(-90 <= lat <= 90 and -180 <= lon <= 180 for lat, lon in COUNTRY_POINTS.values())
