from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nearsay.distill.loss import CHUNK, tied_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [1, 7, CHUNK + 3])
def test_loss_and_gradients_equal_those_of_whole_logits(count: int, smoothing: float) -> None:
    torch.manual_seed(0)
    states = torch.randn(count, 8, requires_grad=True)
    table = torch.randn(11, 8, requires_grad=True)
    ids = torch.randint(11, (count,))
    loss, exact = tied_loss(states, table, ids, smoothing)
    (loss * 0.5).backward()
    again, table_again = states.detach().requires_grad_(), table.detach().requires_grad_()
    wanted = F.cross_entropy(again @ table_again.T, ids, label_smoothing=smoothing, reduction="sum")
    (wanted * 0.5).backward()
    assert torch.allclose(loss, wanted, rtol=1e-5)
    assert torch.allclose(exact, F.cross_entropy(again @ table_again.T, ids, reduction="sum"), rtol=1e-5)
    assert states.grad is not None and again.grad is not None
    assert table.grad is not None and table_again.grad is not None
    assert torch.allclose(states.grad, again.grad, atol=1e-5)
    assert torch.allclose(table.grad, table_again.grad, atol=1e-4)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_a_smoothing_that_is_no_share_is_refused(smoothing: float) -> None:
    with pytest.raises(ValueError, match="smoothing"):
        tied_loss(torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(1, dtype=torch.long), smoothing)
