from __future__ import annotations

from pathlib import Path

import ctranslate2
import pytest

from nearsay.distill.export import ExportError, Quantization, export_ctranslate2
from nearsay.nmt.decoding import greedy
from nearsay.nmt.transformer import Seq2Seq
from tests.distill.kit import toy_config, toy_network

SOURCES = [[40, 41, 42, 0], [43, 44, 45, 46, 47, 48, 49, 0], [50, 0]]
LIMIT = 12


def export(model: Seq2Seq, folder: Path, quantization: Quantization) -> ctranslate2.Translator:
    config = model.config
    src, trg = (
        [f"{side}{i}" for i in range(n)] for side, n in (("s", config.src_vocab_size), ("t", config.trg_vocab_size))
    )
    export_ctranslate2(model.state_dict(), config, folder, src_pieces=src, trg_pieces=trg, quantization=quantization)
    return ctranslate2.Translator(str(folder), compute_type=quantization, intra_threads=1)


def run(translator: ctranslate2.Translator) -> list[list[int]]:
    pieces = [[f"s{i}" for i in ids] for ids in SOURCES]
    results = translator.translate_batch(pieces, beam_size=1, max_decoding_length=LIMIT)
    return [[int(piece[1:]) for piece in result.hypotheses[0]] for result in results]


@pytest.mark.parametrize("decoder_layers", [1, 3])
def test_the_float_export_translates_as_torch_does(tmp_path: Path, decoder_layers: int) -> None:
    model = toy_network(toy_config(decoder_layers=decoder_layers), seed=4)
    wanted = [[i for i in ids if i != 0] for ids in greedy(model, SOURCES, target_tokens_max=LIMIT)]
    made = run(export(model, tmp_path / "float", "float32"))
    assert made == wanted
    assert any(made)


def test_the_int8_export_is_smaller_and_runs(tmp_path: Path) -> None:
    model = toy_network(toy_config(d_model=64), seed=4)
    export(model, tmp_path / "float", "float32")
    assert len(run(export(model, tmp_path / "int8", "int8"))) == len(SOURCES)
    sizes = [(tmp_path / kind / "model.bin").stat().st_size for kind in ("float", "int8")]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    model = toy_network(toy_config())
    with pytest.raises(ExportError, match="source vocabulary has 1"):
        export_ctranslate2(
            model.state_dict(), model.config, tmp_path / "x", src_pieces=["a"], trg_pieces=[], quantization="int8"
        )
    assert not (tmp_path / "x").exists()
