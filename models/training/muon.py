"""Muon: momentum whose update is orthogonalised, for the matrices inside the layers.

Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), scaling at
arXiv:2502.16982. torch.optim.Muon iterates in bf16, which a CPU without bf16 instructions does
many times slower than f32; this one stays in the parameters' precision.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

# Coefficients of the quintic Newton-Schulz iteration that takes singular values near 1.
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrix: Tensor, steps: int) -> Tensor:
    """Nearly U V^T of the matrix's singular value decomposition; same shape [rows, columns]."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + torch.addmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; each update has a root mean square of about lr / 5."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, steps: int = 4
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "steps": steps, "decay": 0.1})

    @torch.no_grad()
    def step(self) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                velocity = state["momentum"]
                velocity.lerp_(parameter.grad, 1 - group["momentum"])
                ahead = parameter.grad.lerp(velocity, group["momentum"])
                update = orthogonalise(ahead, group["steps"])
                parameter.mul_(1 - group["lr"] * group["decay"])
                # 0.2 sqrt(larger side) makes the root mean square that of an Adam update.
                scale = 0.2 * max(parameter.shape) ** 0.5
                parameter.add_(update, alpha=-group["lr"] * scale)
