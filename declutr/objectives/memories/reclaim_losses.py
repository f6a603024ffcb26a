"""RECLAIM's loss: of given negatives, and of every candidate of the banks in bounded memory.

Equations 2, 3 and 6 of the paper are to be maximised; the loss is their negative. The negatives'
sums of equation 6 have the wrong sign, which together with equation 8 would teach the critic to
accept negatives; they are as in equation 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus
from torch.nn.utils import parametrize

from declutr.objectives.checks import one_of
from declutr.objectives.memories.bank_search import BLOCK
from declutr.objectives.memories.feature_bank import FeatureBank
from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.objectives.numerics import full_precision, reduced

NEGATIVES = ("sum", "mean")


@full_precision
def reclaim_loss(
    positive_logits: Tensor,
    v_logits: Tensor,
    u_logits: Tensor,
    v_found: Tensor | None = None,
    u_found: Tensor | None = None,
    negatives: str = "sum",
    reduction: str = "mean",
) -> Tensor:
    """`sp(-T(u, v)) + 1/2 sum_v' sp(T(u, v')) + 1/2 sum_u' sp(T(u', v))` (RECLAIM, equation 6).

    sp is softplus. The sums over K negatives of each kind weigh K times as much as the pair, the
    gamma of equation 2; `negatives="mean"` weighs both the same. Without negatives their terms
    are 0.

    # Parameters

    positive_logits : T(u, v) `(n,)`.
    v_logits, u_logits : T(u, v') `(n, K_v)` and T(u', v) `(n, K_u)`.
    v_found, u_found : of the same shapes, which of them count; all by default.
    negatives : `"sum"` or `"mean"` over those that count.
    reduction : `"mean"`, `"sum"` or `"none"` over the n pairs.

    # Raises

    `ValueError` : shapes that do not fit, an unknown reduction or `negatives`.
    """
    one_of("negatives", negatives, NEGATIVES, ValueError)
    terms = softplus(-positive_logits)
    for logits, found in ((v_logits, v_found), (u_logits, u_found)):
        if found is None:
            found = torch.ones_like(logits, dtype=torch.bool)
        if logits.dim() != 2 or logits.shape[:1] != terms.shape or found.shape != logits.shape:
            raise ValueError(
                "Expected logits (n,) of pairs and (n, K) of negatives, and as many flags; got "
                f"{tuple(terms.shape)}, {tuple(logits.shape)} and {tuple(found.shape)}."
            )
        weights = found.to(logits.dtype)
        if negatives == "mean":
            weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1)
        terms = terms + (softplus(logits) * weights).sum(dim=1) / 2
    return reduced(terms, reduction, positive_logits, v_logits, u_logits)


def loss_against_all(
    critic: Critic,
    u: Tensor,
    v: Tensor,
    banks: tuple[FeatureBank, FeatureBank],
    ids: Tensor,
    texts: Tensor | None,
    among: Tensor | None,
    mean: bool = False,
) -> Tensor:
    """Compute what `reclaim_loss` with `reduction="sum"` gives where all candidates are negatives.

    Candidates go through the critic a block at a time. A sum over them needs no more than the sum
    of the blocks' gradients, which are known at once: so no block is kept, nor what it was made of,
    for a backward pass before which the banks will have moved on.

    # Parameters

    critic : judges pairs; its singular values are estimated once, as for a single block.
    u, v : raw `(n, d_u)` and `(n, d_v)`.
    banks : of u and of v, in which candidates are the same slots.
    ids, texts, among : as in `FeatureBank.nearest`.
    mean : over the negatives of a kind, in place of their sum.
    """
    numbers = BLOCK if u.device.type == "cpu" else 4 * BLOCK  # fewer launches on a GPU
    size = max(1, numbers // (4 * critic.width * max(1, len(u))))
    slots = banks[0].candidates(among)
    usable = partial(banks[0].usable, ids=ids, texts=texts)
    blocks = slots.split(size) if len(slots) else ()
    with parametrize.cached():  # the weights of one step
        total = softplus(-critic(u, v)).sum()
        weights: Tensor | float = 1.0
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
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, *(gradient * known for known in ctx.saved_tensors)
