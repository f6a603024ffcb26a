"""Triplet losses of FaceNet (Schroff et al., 2015) and Sentence-BERT (Reimers & Gurevych, 2019)."""

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad

from declutr.objectives.checks import at_least_zero, scalar_reduction
from declutr.objectives.numerics import (
    euclidean_distances,
    full_precision,
    positive_pairs,
    reduced,
    same_label,
    squared_distances,
    unit,
)
from declutr.objectives.objective import MetricLearningObjective, Objective


@full_precision
def triplet_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    squared: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, D(a, p) - D(a, n) + margin)` of given triplets.

    D is the Euclidean distance of raw rows (Sentence-BERT, section 3), or its square (FaceNet,
    equation 3, there of unit vectors with margin 0.2). The mean is over all triplets, those that
    are met included.

    # Parameters

    anchor, positive, negative : `(N, d)`.
    margin : what a negative should be further away.
    squared : square the distances.
    reduction : `"mean"`, `"sum"` or `"none"` `(N,)`.

    # Raises

    `ValueError` : shapes that differ, an unknown reduction.
    """
    if not anchor.shape == positive.shape == negative.shape or anchor.dim() != 2:
        raise ValueError(
            "anchor, positive and negative must all be (N, d); got "
            f"{tuple(anchor.shape)}, {tuple(positive.shape)} and {tuple(negative.shape)}."
        )
    if squared:
        near, far = (anchor - positive).pow(2).sum(dim=1), (anchor - negative).pow(2).sum(dim=1)
    else:
        near, far = vector_norm(anchor - positive, dim=1), vector_norm(anchor - negative, dim=1)
    return reduced((near - far + margin).clamp_min(0), reduction, anchor, positive, negative)


@full_precision
def all_triplets_loss(
    embeddings: Tensor,
    labels: Tensor,
    margin: float = 1.0,
    squared: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_loss` of all triplets of a batch, without making them.

    There may be M^3 triplets. The negatives of an anchor are sorted by distance; those that a
    positive at distance D competes with are the first `count` ones, nearer than D + margin, and add
    up to `count * (D + margin)` less the sum of their distances. Memory is quadratic in M, time
    M^2 log M.

    # Parameters

    embeddings : `(M, d)`. labels : `(M,)`.
    margin, squared : as in `triplet_loss`.
    reduction : `"mean"` over all triplets or `"sum"`.

    # Raises

    `ValueError` : another reduction. There is no tensor of the terms.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"Unknown reduction '{reduction}': expected one of mean, sum (the terms of all "
            "triplets are never made; 'triplet_loss' has 'none', for given ones)."
        )
    measure = squared_distances if squared else euclidean_distances
    # Sums of many distances are subtracted from each other: in float64.
    distances = measure(embeddings, embeddings).double()  # (M, M)
    same, positive = same_label(labels), positive_pairs(labels)
    triplets = (positive.sum(dim=1) * (~same).sum(dim=1)).sum()
    far = distances.masked_fill(same, math.inf).sort(dim=1).values  # (M, M)
    sums = pad(far.masked_fill(far.isinf(), 0).cumsum(dim=1), (1, 0))  # (M, 1 + M)
    limits = distances + margin
    count = torch.searchsorted(far.detach(), limits.detach())  # (M, M)
    total = (count * limits - sums.gather(1, count)).where(positive, 0).sum()
    return (total / triplets.clamp_min(1) if reduction == "mean" else total).to(embeddings.dtype)


@Objective.register("triplet")
class Triplet(MetricLearningObjective):
    """Triplet loss over all triplets of the 2N rows of both views, or over given ones.

    `forward(anchors, positives)` is `all_triplets_loss`; with `negatives` `(N * K, d)`, K of each
    anchor, it is `triplet_loss` of these triplets, whatever their labels.

    # Parameters

    margin : what a negative should be further away: 1 for raw text embeddings, 0.2 on the sphere.
    squared : square the distances.
    normalize_embeddings : scale rows to length 1 before.
    reduction : `"mean"` over all triplets or `"sum"`.
    """

    def __init__(
        self,
        margin: float = 1.0,
        squared: bool = False,
        normalize_embeddings: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.margin = at_least_zero("margin", margin)
        self.squared = squared
        self.normalize_embeddings = normalize_embeddings
        self.reduction = scalar_reduction(reduction)

    def forward(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        labels: Tensor | None = None,
    ) -> Tensor:
        if negatives is None:
            return super().forward(anchors, positives, labels=labels)
        several = len(negatives) // max(1, len(anchors))  # of each anchor, one after the other
        if several > 1 and len(negatives) == several * len(anchors):
            anchors, positives = (
                view.repeat_interleave(several, dim=0) for view in (anchors, positives)
            )
        anchors, positives, negatives = map(self._scaled, (anchors, positives, negatives))
        return triplet_loss(
            anchors, positives, negatives, self.margin, self.squared, self.reduction
        )

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        rows = self._scaled(embeddings)
        return all_triplets_loss(rows, labels, self.margin, self.squared, self.reduction)

    def _scaled(self, rows: Tensor) -> Tensor:
        return unit(rows) if self.normalize_embeddings else rows
