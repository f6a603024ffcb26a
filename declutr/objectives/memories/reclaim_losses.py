"""The loss of RECLAIM, with given negatives or with all candidates of the banks as negatives.

Equations 2, 3 and 6 of the paper are to be maximised; the loss is their negative. The sums over
negatives in equation 6 have the wrong sign, which together with equation 8 would teach the critic
to accept negatives. Here they have the sign of equation 3.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus
from torch.nn.utils import parametrize

from declutr.objectives.memories.bank_search import BLOCK, CACHED
from declutr.objectives.memories.feature_bank import FeatureBank
from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.objectives.numerics import full_precision, one_of, reduced

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
    """Compute the RECLAIM loss from the logits of pairs and of their negatives.

    The loss of a pair is `sp(-T(u, v)) + 1/2 sum_v' sp(T(u, v')) + 1/2 sum_u' sp(T(u', v))`, where
    sp is softplus (RECLAIM, equation 6). With K negatives of each kind, the sums weigh K times as
    much as the pair, which is gamma in equation 2. With `negatives="mean"` both weigh the same.
    Without negatives their terms are 0.

    # Parameters

    positive_logits : the logits T(u, v) `(n,)` of pairs.
    v_logits, u_logits : the logits T(u, v') `(n, K_v)` and T(u', v) `(n, K_u)` with negatives.
    v_found, u_found : masks of the same shapes of the negatives that count; by default all do.
    negatives : `"sum"` or `"mean"` over the negatives that count.
    reduction : `"mean"` or `"sum"` over the n pairs, or `"none"` for the losses `(n,)`.

    # Raises

    `ValueError` : if shapes do not fit, or if the reduction or `negatives` is unknown.
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
    """Compute the RECLAIM loss summed over pairs, with all candidates of the banks as negatives.

    Candidates go through the critic one block at a time, in memory that does not depend on their
    number. The gradient of a sum over blocks is the sum of the gradients of the blocks, which are
    computed at once. So nothing of a block has to be kept for the backward pass, before which the
    banks will be updated.

    # Parameters

    critic : the critic; its singular values are estimated once for all blocks.
    u, v : raw features `(n, d_u)` and `(n, d_v)`, of which row i of both is a pair.
    banks : the banks of u and of v, in which candidates are the same slots.
    ids, texts, among : see `FeatureBank.nearest`.
    mean : whether to take the mean over the negatives of each kind instead of the sum.

    # Returns

    A scalar, equal to `reclaim_loss` with `reduction="sum"`.
    """
    # What a block needs fits into the caches of a CPU; a GPU needs fewer launches with large ones.
    numbers = CACHED if u.device.type == "cpu" else 4 * BLOCK
    size = max(1, numbers // (4 * critic.width * max(1, len(u))))
    slots = banks[0].candidates(among)
    usable = partial(banks[0].usable, ids=ids, texts=texts)
    blocks = slots.split(size) if len(slots) else ()
    with parametrize.cached():  # All blocks use the same weights, and one power iteration.
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
    """A function that returns a scalar whose gradients to the inputs are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, *(gradient * known for known in ctx.saved_tensors)
