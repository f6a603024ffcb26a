"""RECLAIM's term against every candidate of the banks, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus
from torch.nn.utils import parametrize

from declutr.objectives.memories.bank_search import BLOCK
from declutr.objectives.memories.feature_bank import FeatureBank
from declutr.objectives.memories.lipschitz_critic import Critic


def loss_against_all(
    critic: Critic,
    u: torch.Tensor,
    v: torch.Tensor,
    banks: tuple[FeatureBank, FeatureBank],
    slots: torch.Tensor,
    usable: Callable[[torch.Tensor], torch.Tensor],
    mean: bool = False,
) -> torch.Tensor:
    """What `reclaim_loss` with `reduction="sum"` gives where all of some slots are negatives.

    Candidates go through the critic a block at a time. A sum over them needs no more than the sum
    of the blocks' gradients, which are known at once: so no block is kept, nor what it was made of,
    for a backward pass before which the banks will have moved on.

    # Parameters

    critic : judges pairs; its singular values are estimated once, as for a single block.
    u, v : raw `(n, d_u)` and `(n, d_v)`.
    banks : of u and of v.
    slots : `(c,)`, the candidates.
    usable : of slots `(b,)`, which of them count for which pair `(n, b)`.
    mean : over the negatives of a kind, in place of their sum.
    """
    numbers = BLOCK if u.device.type == "cpu" else 4 * BLOCK  # fewer launches on a GPU
    size = max(1, numbers // (4 * critic.width * max(1, len(u))))
    blocks = slots.split(size) if len(slots) else ()
    with parametrize.cached():  # the weights of one step
        total = softplus(-critic(u, v)).sum()
        weights: torch.Tensor | float = 1.0
        if mean:
            counts = sum(usable(block).sum(dim=1, keepdim=True) for block in blocks)
            weights = 1 / torch.as_tensor(counts, device=u.device).clamp_min(1)
        inputs = [one for one in (u, v, *critic.in_use()) if one.requires_grad]
        inputs = inputs if torch.is_grad_enabled() else []
        value, gradients = torch.zeros_like(total), [torch.zeros_like(one) for one in inputs]
        for block in blocks:
            u_rows, v_rows = (bank.rows(block).to(u).unsqueeze(0) for bank in banks)
            _, v_logits, u_logits = critic.against(u, v, v_rows, u_rows)  # (n, b) each
            terms = softplus(v_logits) + softplus(u_logits)
            part = (terms * usable(block) * weights).sum() / 2
            value += part.detach()
            if inputs:
                found = torch.autograd.grad(part, inputs, allow_unused=True)
                for gradient, more in zip(gradients, found, strict=True):
                    if more is not None:
                        gradient += more
    return total + _WithGradients.apply(value, gradients, *inputs)


class _WithGradients(torch.autograd.Function):
    """A scalar whose gradients are known."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, gradients: list[torch.Tensor], *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, *(gradient * known for known in ctx.saved_tensors)
