"""The lifted structured loss (Oh Song et al., 2016)."""

import math

import torch
from torch import Tensor

from declutr.objectives.checks import at_least_zero, check_views, scalar_reduction
from declutr.objectives.numerics import (
    euclidean_distances,
    full_precision,
    reduced,
    reduced_where,
    same_label,
    unit,
)
from declutr.objectives.objective import MetricLearningObjective, Objective


@full_precision
def lifted_structured_loss(
    embeddings: Tensor,
    labels: Tensor | None,
    margin: float = 1.0,
    hinge: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Every positive pair against all negatives of both its rows.

    `J_ij = D_ij + log(sum_k exp(margin - D_ik) + sum_l exp(margin - D_jl))`, k and l over the rows
    of other labels, and the loss is the mean of `max(0, J_ij)^2 / 2` over unordered positive pairs
    (Oh Song et al., 2016, equation 4); `hinge` has the largest term for the logarithm (equation 3).
    D is the Euclidean distance of raw rows. Without negatives there are no terms.

    # Parameters

    embeddings : `(M, d)`.
    labels : `(M,)`, or `None` for labels of two rows each, i and M / 2 + i, of which less has to be
        computed.
    margin : what a negative should be further away.
    hinge : the hardest negative instead of all of them.
    reduction : `"mean"`, `"sum"`, or `"none"`, a term for each unordered positive pair.

    # Raises

    `ValueError` : an unknown reduction.
    """
    if len(embeddings) < 2:  # no pairs
        return reduced(embeddings[:0].sum(dim=1), reduction, embeddings)
    distances = euclidean_distances(embeddings, embeddings)  # (M, M)
    pairs = len(distances) // 2
    same = same_label(
        torch.arange(pairs, device=distances.device).repeat(2) if labels is None else labels
    )
    several = ~same.all()  # One label: no row has a negative. Two labels: every row has one.
    near = (margin - distances).masked_fill(same & several, -math.inf)  # (M, M)
    negatives = near.amax(dim=1) if hinge else near.logsumexp(dim=1)  # (M,)
    of_both = torch.maximum if hinge else torch.logaddexp
    if labels is None:
        joined = distances.diagonal(pairs) + of_both(negatives[:pairs], negatives[pairs:])
        kept = several.expand(pairs)
    else:
        joined = distances + of_both(negatives.unsqueeze(1), negatives)  # (M, M)
        kept = same.triu(1) & several
    return reduced_where(kept, joined.relu().square(), reduction) / 2


@Objective.register("lifted_structured")
class LiftedStructured(MetricLearningObjective):
    """The lifted structured loss over the 2N rows of both views; see `lifted_structured_loss`.

    # Parameters

    margin : what a negative should be further away.
    hinge : the hardest negative instead of all of them.
    normalize_embeddings : scale rows to length 1 before.
    reduction : `"mean"` or `"sum"`.
    """

    def __init__(
        self,
        margin: float = 1.0,
        hinge: bool = False,
        normalize_embeddings: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.margin = at_least_zero("margin", margin)
        self.hinge = hinge
        self.normalize_embeddings = normalize_embeddings
        self.reduction = scalar_reduction(reduction)

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        if labels is not None:
            return super().forward(anchors, positives, labels=labels)
        check_views(anchors, positives)
        return self.labelled_loss(torch.cat([anchors, positives]), None)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        rows = unit(embeddings) if self.normalize_embeddings else embeddings
        return lifted_structured_loss(rows, labels, self.margin, self.hinge, self.reduction)
