"""Label-smoothed cross entropy through a tied output projection, without ever holding all logits.

Chunks of positions go through projection, softmax and both gradients while they are in the cache; the pass to and from
memory for [N, V] logits would cost more than the arithmetic. Smoothing as in Szegedy et al. (2016): the target has
1 - s, and s is spread evenly over the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

CHUNK = 512


class _TiedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, ids: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        vocab = table.shape[0]
        state_grad = torch.empty_like(states)
        table_grad = torch.zeros(table.shape, dtype=torch.float32, device=table.device)
        loss = states.new_zeros((), dtype=torch.float32)
        exact = torch.zeros_like(loss)
        for start in range(0, len(ids), CHUNK):
            part, wanted = states[start : start + CHUNK], ids[start : start + CHUNK, None]
            logits = (part @ table.T).float()  # [C, V]
            log_sum = logits.logsumexp(1, keepdim=True)
            right = logits.gather(1, wanted)
            exact += (log_sum - right).sum()
            loss += (log_sum - (1 - smoothing) * right - smoothing * logits.mean(1, keepdim=True)).sum()
            grad = (logits - log_sum).exp_().sub_(smoothing / vocab)
            grad.scatter_add_(1, wanted, torch.full_like(right, smoothing - 1))
            grad = grad.to(states.dtype)
            state_grad[start : start + CHUNK] = grad @ table
            table_grad += (grad.T @ part).float()
        ctx.save_for_backward(state_grad, table_grad.to(table.dtype))
        ctx.mark_non_differentiable(exact)
        return loss, exact

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        state_grad, table_grad = ctx.saved_tensors
        scale = grads[0]
        return state_grad * scale.to(state_grad.dtype), table_grad * scale.to(table_grad.dtype), None, None


def tied_loss(states: Tensor, table: Tensor, ids: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """states [N, d], table [V, d], ids [N]: the summed smoothed loss, and the summed plain negative log-likelihood.

    Raises ValueError when smoothing isn't in [0, 1).
    """
    if not 0 <= smoothing < 1 or math.isnan(smoothing):
        raise ValueError(f"label smoothing {smoothing} must be at least 0 and below 1")
    loss, exact = _TiedLoss.apply(states, table, ids, smoothing)  # type: ignore[no-untyped-call]
    return loss, exact
