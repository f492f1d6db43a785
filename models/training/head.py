"""The loss at the output head, with the gradient taken chunk by chunk of rows.

The logits of one step (4,096 rows of 8,192) do not fit the cache of a small CPU and cost more time
in memory traffic than in arithmetic. Here each chunk's logits live only while its gradient is
formed, in the forward pass, as in Liger Kernel's fused linear cross entropy (arXiv:2410.10989).
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

ROWS = 512


def _chunk_gradient(
    logits: Tensor, targets: Tensor, teacher: Tensor | None, mix: float
) -> tuple[Tensor, Tensor]:
    """Summed loss and d loss / d logits of one chunk. logits, teacher: [rows, V]; targets: [rows].

    The loss is (1 - mix) * cross entropy + mix * KL(teacher || student), in nats a row. Both
    gradients are softmax minus a target distribution: a one-hot one and the teacher's.
    """
    logp = logits.float().log_softmax(-1)
    rows = torch.arange(len(targets), device=targets.device)
    loss = -logp[rows, targets].sum() * (1.0 - mix)
    gradient = logp.exp()
    if teacher is not None and mix > 0:
        teacher_logp = teacher.float().log_softmax(-1)
        teacher_p = teacher_logp.exp()
        loss = loss + mix * torch.sum(teacher_p * (teacher_logp - logp))
        gradient -= mix * teacher_p
    gradient[rows, targets] -= 1.0 - mix
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
        mix: float,
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
    mix: float = 0.0,
) -> Tensor:
    """Mean loss in nats a token of the head ``weight`` [V, d] on ``hidden`` [..., d].

    ``targets`` [...] are the next tokens. With ``teacher`` = (hidden [..., D], weight [V, D]) the
    share ``mix`` of the loss is the forward KL divergence from the teacher's distribution.
    """
    flat = hidden.reshape(-1, hidden.shape[-1])
    teacher_hidden = teacher_weight = None
    if teacher is not None:
        teacher_hidden = teacher[0].reshape(-1, teacher[0].shape[-1]).to(flat.dtype)
        teacher_weight = teacher[1].to(flat.dtype)
    return _HeadLoss.apply(flat, weight, targets.reshape(-1), teacher_hidden, teacher_weight, mix)
