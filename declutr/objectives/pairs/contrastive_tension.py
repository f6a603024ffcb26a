"""Contrastive tension between two encoders that start as equals (Carlsson et al., 2021)."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives.numerics import (
    above_zero,
    check_views,
    full_precision,
    reduced,
    scalar_reduction,
)
from declutr.objectives.objective import Objective


@full_precision
def tension_loss(x: Tensor, y: Tensor, negatives: int = 7, reduction: str = "mean") -> Tensor:
    """Compute the binary cross entropy of telling pairs of the same sentence from other pairs.

    Rows come in groups of `negatives + 1` pairs. With z = x_i.y_i, the loss of the first pair of a
    group is `-log sigmoid(z)`, and that of the others is `-log(1 - sigmoid(z))`: the binary cross
    entropy of the public code of Carlsson et al. (2021). Dot products are of raw rows.

    # Parameters

    x, y : raw rows `(N, d)` of the two encoders; the first pair of each group is of one sentence,
        the others are of two.
    negatives : K, the pairs of two sentences for each pair of one, 1 or more.
    reduction : `"mean"` or `"sum"` over the N pairs, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes differ or the reduction is unknown.
    """
    check_views(x, y)
    scores = (x * y).sum(dim=1)
    same = torch.arange(len(x), device=x.device) % (negatives + 1) == 0
    return reduced(softplus(torch.where(same, -scores, scores)), reduction, x, y)


@Objective.register("contrastive_tension")
class ContrastiveTension(Objective):
    """The loss of contrastive tension; see `tension_loss`.

    It is for a model with `two_encoders` and the views "tension", which make the groups of pairs.

    # Parameters

    negatives : K, the pairs of two sentences for each pair of one, 1 or more; the views' own.
    reduction : `"mean"` or `"sum"` over the pairs.

    # Raises

    `ConfigurationError` : if a setting is out of range.
    """

    def __init__(self, negatives: int = 7, reduction: str = "mean") -> None:
        super().__init__()
        self.negatives = above_zero("negatives", negatives)
        self.group = negatives + 1
        self.reduction = scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return tension_loss(anchors, positives, self.negatives, self.reduction)
