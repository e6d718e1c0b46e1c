"""What a model takes is known before it is there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from nearsay.nmt.linear import Linear
from nearsay.nmt.weights import save_native
from origin.engine.footprint import STEP_TOKENS, cache_bytes, footprint_bytes
from origin.engine.torch_engine import TorchEngine, TorchOptions
from origin.memory import HOST_SHARE, host_bytes
from tests.origin import tiny


def size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@pytest.mark.parametrize("kind", ["attention", "ssru"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_what_the_real_ones_take(kind: str, dtype: torch.dtype) -> None:
    model = tiny.model(kind).to(dtype).pack()
    cache = model.new_cache(5)
    weights = sum(map(size, (*model.parameters(), *model.buffers())))
    packed = sum(size(m.weight) for m in model.modules() if isinstance(m, Linear)) + size(model.output_table)
    logits = 4 * tiny.VOCAB * (5 + STEP_TOKENS)
    expected = weights + packed + cache_bytes(cache) + logits
    assert footprint_bytes(model.config, 5, dtype, "cpu") == expected
    tables = (cache.cross_k, cache.cross_v, cache.self_k, cache.self_v, cache.state, (cache.cross_bias,))
    assert cache_bytes(cache) == sum(size(table) for kind in tables for table in kind)


def test_it_grows_with_the_slots_and_shrinks_with_the_type() -> None:
    config = tiny.config()
    one, two = (footprint_bytes(config, slots, torch.float32, "cpu") for slots in (4, 8))
    assert 0 < one < two < 2 * one
    assert footprint_bytes(config, 4, torch.float16, "cuda") < one


def test_nothing_is_allocated_to_find_out() -> None:
    """Tens of GiB, on any machine."""
    config = tiny.config(d_model=4096, heads=16, encoder_ffn=16384, decoder_ffn=16384, encoder_layers=24)
    assert footprint_bytes(config, 2048, torch.float32, "cpu") > 20 << 30


def test_of_a_folder_by_its_config_alone(tmp_path: Path) -> None:
    model = tiny.model()
    save_native(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    engine = tiny.Origin(model, slots=4).engine
    entry = msgspec.structs.replace(tiny.entry(), path=tmp_path)
    assert engine.footprint(entry) == footprint_bytes(model.config, 4, torch.float32, "cpu")


def test_what_models_may_take_is_what_kept_encodings_leave() -> None:
    def left(**options: int) -> int:
        return TorchEngine((), TorchOptions(device="cpu", **options), clock=lambda: 0.0).memory_bytes_max

    assert left(memory_bytes_max=1000, encoder_cache_bytes=300) == 700
    assert left(encoder_cache_bytes=1) == int(HOST_SHARE * host_bytes()) - 1
