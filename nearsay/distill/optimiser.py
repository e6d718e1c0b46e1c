"""bf16 weights that run, float32 masters that learn, and their running average.

Decides: how a gradient changes a weight. Invariant: after `step` each running weight is its master, rounded.
Adam (Kingma and Ba, 2015); averaging as in Polyak and Juditsky (1992), exponentially weighted.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.98)
GRADIENT_NORM_MAX = 1.0


class MasterAdam:
    """Adam over float32 copies of the named parameters.

    average: decay of the running average, by step; early steps average over fewer, so it starts at the weights.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, average: float) -> None:
        self._running = dict(parameters)
        self.masters = {name: p.detach().float().clone() for name, p in self._running.items()}
        self.averages = {name: m.clone() for name, m in self.masters.items()}
        self._average = average
        self._steps = 0
        self._adam = torch.optim.Adam(list(self.masters.values()), betas=BETAS, eps=1e-9, fused=True)

    def load(self, masters: Mapping[str, Tensor], averages: Mapping[str, Tensor]) -> None:
        """Goes on from stored weights; Adam's moments start anew, so warm up again."""
        for ours, theirs in ((self.masters, masters), (self.averages, averages)):
            for name, tensor in ours.items():
                tensor.copy_(theirs[name])
        self._publish()

    def step(self, rate: float) -> float:
        """One update at this learning rate from the running weights' gradients, which it clears; the gradient norm."""
        for name, running in self._running.items():
            assert running.grad is not None, name
            self.masters[name].grad = running.grad.float()
            running.grad = None
        norm = nn.utils.clip_grad_norm_(list(self.masters.values()), GRADIENT_NORM_MAX)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self._steps += 1
        decay = min(self._average, self._steps / (self._steps + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averages.values()), list(self.masters.values()), 1 - decay)
        self._publish()
        return float(norm)

    def _publish(self) -> None:
        with torch.no_grad():
            for name, running in self._running.items():
                running.copy_(self.masters[name])
