from __future__ import annotations

import hashlib
import tomllib
from datetime import date
from pathlib import Path

import pytest

from nearsay.distill import publish
from nearsay.distill.evaluate import Score, Scores
from nearsay.distill.publish import BEGIN, END, SERVED, PublishError, render_scores, write_card, write_manifest

DAY = date(2026, 12, 1)
SCORES = Scores(
    signatures={"bleu": "nrefs:1|version:x"},
    models={
        "teacher": {"tatoeba.dev": Score(bleu=31.0, chrf=52.0, pairs=1500)},
        "student-int8": {"tatoeba.dev": Score(bleu=30.25, chrf=51.0, pairs=1500)},
    },
    symbols={"student-int8": 0.9},
    size_bytes={"student-int8": 18_200_000},
)


def pair_folder(folder: Path) -> Path:
    for name in SERVED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def test_the_manifest_names_both_tiers_and_hashes_every_file(tmp_path: Path) -> None:
    folder = pair_folder(tmp_path)
    write_manifest(folder, source="en", target="de", version="2", licence="MPL-2.0", published=DAY)
    manifest = tomllib.loads((folder / "model.toml").read_text())
    assert manifest["edge"] == {"id": "en-de-student", "version": "2", "engine": "ctranslate2", "path": "student"}
    assert manifest["origin"]["engine"] == "nearsay" and manifest["published"] == DAY
    assert manifest["sha256"] == {name: hashlib.sha256(name.encode()).hexdigest() for name in SERVED}


def test_a_missing_file_and_a_folder_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pair_folder(tmp_path)
    monkeypatch.setattr(publish, "SIZE_BYTES_MAX", 10)
    with pytest.raises(PublishError, match="more than 10"):
        write_manifest(folder, source="en", target="de", version="2", licence="MPL-2.0", published=DAY)
    (folder / "source.spm").unlink()
    with pytest.raises(PublishError, match=r"lacks source\.spm"):
        write_manifest(folder, source="en", target="de", version="2", licence="MPL-2.0", published=DAY)


def test_the_card_gets_the_scores_between_its_marks(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text(f"# Model\n\n{BEGIN}\nold\n{END}\n\nEnd.\n")
    for _ in range(2):
        write_card(tmp_path, SCORES)
    text = card.read_text()
    assert text.startswith("# Model\n") and text.endswith("\n\nEnd.\n")
    assert "old" not in text
    assert "| tatoeba.dev | 1,500 | 31.0 / 52.0 | 30.2 / 51.0 |" in text
    assert "student-int8 30.25, 1." in render_scores(SCORES)
    assert "18.2 MB" in text and "90.0 %" in text


def test_a_card_without_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="no place"):
        write_card(tmp_path, SCORES)
