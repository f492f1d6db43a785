"""The loss at the output head, with the gradient taken chunk by chunk of rows.

The logits of one step (4,096 rows of 4,096) do not fit the cache of a small CPU and cost more time
in memory traffic than in arithmetic. Here each chunk's logits live only while its gradient is
formed, in the forward pass, as in Liger Kernel's fused linear cross entropy (arXiv:2410.10989).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

ROWS = 512


@dataclass(frozen=True)
class Mix:
    """Shares of the loss: of cross entropy with the text what the two divergences leave over.

    ``forward`` is KL(teacher || student), ``reverse`` KL(student || teacher) (arXiv:2306.08543).
    """

    forward: float = 0.0
    reverse: float = 0.0

    @property
    def text(self) -> float:
        """The share of cross entropy."""
        return 1.0 - self.forward - self.reverse


def _chunk_gradient(
    logits: Tensor, targets: Tensor, teacher: Tensor | None, mix: Mix
) -> tuple[Tensor, Tensor]:
    """Summed loss and d loss / d logits of one chunk. logits, teacher: [rows, V]; targets: [rows].

    In nats a row. The gradients of cross entropy and of forward KL are the softmax minus a target
    distribution: a one-hot one and the teacher's. That of reverse KL weighs each log-ratio,
    less its mean, by the student's probability.
    """
    logp = logits.float().log_softmax(-1)
    rows = torch.arange(len(targets), device=targets.device)
    loss = -logp[rows, targets].sum() * mix.text
    student = logp.exp()
    gradient = student * (mix.text + mix.forward)
    if teacher is not None:
        teacher_logp = teacher.float().log_softmax(-1)
        ratio = logp - teacher_logp
        expected = teacher_logp.exp()
        loss = loss - mix.forward * torch.sum(expected * ratio)
        gradient -= mix.forward * expected
        reverse = torch.sum(student * ratio, dim=-1, keepdim=True)
        loss = loss + mix.reverse * reverse.sum()
        gradient += mix.reverse * student * (ratio - reverse)
    gradient[rows, targets] -= mix.text
    return loss, gradient


class _HeadLoss(torch.autograd.Function):
    """Mean loss over rows; the gradients are ready when the forward pass ends."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        teacher_hidden: Tensor | None,
        teacher_weight: Tensor | None,
        mix: Mix,
    ) -> Tensor:
        rows = len(hidden)
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, rows, ROWS):
            part = slice(start, start + ROWS)
            teacher = None
            if teacher_hidden is not None:
                teacher = teacher_hidden[part] @ teacher_weight.T
            cast = weight.to(hidden.dtype)
            loss, gradient = _chunk_gradient(hidden[part] @ cast.T, targets[part], teacher, mix)
            gradient = gradient.mul_(1.0 / rows).to(hidden.dtype)
            hidden_gradient[part] = gradient @ cast
            weight_gradient += gradient.T @ hidden[part]
            total += loss / rows
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * upstream, weight_gradient * upstream, None, None, None, None


def head_loss(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    teacher: tuple[Tensor, Tensor] | None = None,
    mix: Mix = Mix(),
) -> Tensor:
    """Mean loss in nats a token of the head ``weight`` [V, d] on ``hidden`` [..., d].

    ``targets`` [...] are the next tokens. ``teacher`` = (hidden [..., D], weight [V, D]) gives the
    distributions that the two divergences of ``mix`` are taken to.
    """
    flat = hidden.reshape(-1, hidden.shape[-1])
    teacher_hidden = teacher_weight = None
    if teacher is not None:
        teacher_hidden = teacher[0].reshape(-1, teacher[0].shape[-1]).to(flat.dtype)
        teacher_weight = teacher[1].to(flat.dtype)
    return _HeadLoss.apply(flat, weight, targets.reshape(-1), teacher_hidden, teacher_weight, mix)
