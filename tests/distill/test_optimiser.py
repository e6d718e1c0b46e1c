from __future__ import annotations

import torch
from torch import nn

from nearsay.distill.optimiser import MasterAdam


def running(value: float = 1.0) -> dict[str, nn.Parameter]:
    return {"w": nn.Parameter(torch.full((4, 4), value, dtype=torch.bfloat16))}


def test_masters_gather_steps_that_bf16_would_lose() -> None:
    parameters = running()
    optimiser = MasterAdam(parameters, average=0.9)
    for _ in range(8):
        parameters["w"].grad = torch.ones_like(parameters["w"])
        optimiser.step(2e-4)
        assert torch.equal(parameters["w"].data, optimiser.masters["w"].to(torch.bfloat16))
    assert torch.allclose(optimiser.masters["w"], torch.tensor(1 - 8 * 2e-4), atol=1e-5)
    assert parameters["w"].grad is None


def test_the_average_lags_behind_the_masters() -> None:
    parameters = running()
    optimiser = MasterAdam(parameters, average=0.5)
    for _ in range(20):
        parameters["w"].grad = torch.ones_like(parameters["w"])
        optimiser.step(0.01)
    assert float(optimiser.masters["w"][0, 0]) < float(optimiser.averages["w"][0, 0]) < 1.0


def test_large_gradients_are_clipped() -> None:
    parameters = running()
    optimiser = MasterAdam(parameters, average=0.9)
    parameters["w"].grad = torch.full((4, 4), 100.0, dtype=torch.bfloat16)
    assert optimiser.step(0.1) == 400.0


def test_loaded_weights_run_at_once() -> None:
    parameters = running()
    optimiser = MasterAdam(parameters, average=0.9)
    optimiser.load({"w": torch.full((4, 4), 3.0)}, {"w": torch.full((4, 4), 2.0)})
    assert float(parameters["w"].detach()[0, 0]) == 3.0
    assert float(optimiser.averages["w"][0, 0]) == 2.0
