"""What only a GPU can show: the same ids there, and an edge engine that takes it. Skipped, saying so, without one."""

from __future__ import annotations

from pathlib import Path

import ctranslate2
import pytest
import torch

from nearsay.nmt.decoding import greedy
from nearsay.text.engine import LocalInput, open_engine
from nearsay.text.registry import Registry, load_vocabs
from tests.kit.tiny_ct2 import make_tiny_pair
from tests.nmt.tiny import VARIANTS, sources, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False"),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_gives_the_same_ids_on_the_gpu(variant: str) -> None:
    config = VARIANTS[variant]
    texts = sources(config, 16)
    on_cpu = greedy(tiny_model(config), texts)
    assert greedy(tiny_model(config).to("cuda"), texts) == on_cpu


@pytest.mark.skipif(ctranslate2.get_cuda_device_count() == 0, reason="CTranslate2 sees no CUDA device")
def test_an_edge_takes_the_gpu_in_half_precision(tmp_path: Path) -> None:
    make_tiny_pair(tmp_path / "en-de")
    entry = Registry.discover([tmp_path], defaults=False).find("en", "de", "edge")
    assert entry is not None
    source, _ = load_vocabs(entry)
    engine = open_engine(entry, device="auto")
    try:
        assert (engine.info.device, engine.info.precision) == ("cuda", "float16")
        [output] = engine.translate([LocalInput("the cat", tuple(source.encode("the cat")))])
        assert output.ids
    finally:
        engine.close()
