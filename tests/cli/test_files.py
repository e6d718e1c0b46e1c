from __future__ import annotations

import io
from pathlib import Path

import pytest

from nearsay.cli.files import Outputs, files_of, read_text


def test_files_or_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    path = str(tmp_path / "a.txt")
    assert files_of([]) == files_of(["Good morning"]) == files_of(["x" * 10_000]) == files_of([""]) == []
    assert files_of([path, path]) == [Path(path)] * 2
    assert files_of([str(tmp_path)]) == [], "a folder is no file"
    with pytest.raises(ValueError, match="nowhere"):
        files_of([path, "nowhere"])


def test_text_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ä\r\n\n b\r".encode())
    assert read_text(path) == "ä\r\n\n b\r"
    path.write_bytes(b"a\xff")
    with pytest.raises(ValueError, match=r"not UTF-8 \(byte 1\)"):
        read_text(path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\r\n")))
    assert read_text(None) == "x\r\n"


def test_outputs(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    a, b, folder = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "out"
    folder.mkdir()
    with Outputs.choose([a, b], folder) as outputs:
        outputs.emit_to(a)("1\r\n")
        outputs.emit_to(b)("2")
        outputs.emit_to(a)("ü\n")
    assert (folder / "a.txt").read_bytes() == "1\r\nü\n".encode()
    assert (folder / "b.txt").read_bytes() == b"2"
    for sources in ([a], []):
        with Outputs.choose(sources, tmp_path / "one") as outputs:
            outputs.emit_to(sources[0] if sources else None)("x")
        assert (tmp_path / "one").read_bytes() == b"x"
    with Outputs.choose([a, b], None) as outputs:
        outputs.emit_to(b)("ü\r\n")
    assert capfdbinary.readouterr().out == "ü\r\n".encode()


def test_outputs_that_would_lose_something(tmp_path: Path) -> None:
    a, other = tmp_path / "a.txt", tmp_path / "other" / "a.txt"
    folder = tmp_path / "out"
    folder.mkdir()
    for sources, output, why in (
        ([a, other], tmp_path / "x", "not a folder"),
        ([], folder, "is a folder"),
        ([a, other], folder, "one name"),
        ([a], a, "overwrite"),
        ([a], tmp_path, "overwrite"),
    ):
        with pytest.raises(ValueError, match=why):
            Outputs.choose(sources, output)
