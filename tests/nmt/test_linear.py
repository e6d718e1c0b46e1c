from __future__ import annotations

import pytest
import torch

from nearsay.nmt.linear import Linear, pack
from tests.nmt.tiny import BASE, tiny_model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7, 40])
@torch.inference_mode()
def test_packing_changes_the_time_not_the_product(dtype: torch.dtype, rows: int) -> None:
    linear = Linear(48, 65).to(dtype).eval()
    x = torch.randn(rows, 3, 48, dtype=dtype)
    plain = linear(x)
    linear.pack()
    assert torch.allclose(linear(x), plain, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_training_forgets_the_packing() -> None:
    model = tiny_model(BASE).pack()
    layer = model.decoder.stack[0].ffn.fc1
    assert layer.packed is not None and model._packed_output is not None
    model.train()
    assert layer.packed is None and model._packed_output is None
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    assert float(layer(torch.ones(1, BASE.d_model)).abs().sum()) == 0.0


def test_what_can_not_be_packed_stays_as_it_is() -> None:
    assert pack(torch.ones(4, 4, dtype=torch.float64)) is None
    assert pack(torch.ones(4, 4, device="meta")) is None
