"""The triplet losses of FaceNet and of Sentence-BERT.

The papers are Schroff et al. (2015) and Reimers & Gurevych (2019).
"""

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad

from declutr.objectives import numerics
from declutr.objectives.distances import euclidean_distances, squared_distances
from declutr.objectives.objective import MetricLearningObjective, Objective


@numerics.full_precision
def triplet_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    squared: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Compute the triplet loss of given triplets.

    The loss of a triplet is `max(0, D(a, p) - D(a, n) + margin)`. D is the Euclidean distance of
    the raw rows (Sentence-BERT, section 3), or its square (FaceNet, equation 3, where rows are unit
    vectors and the margin is 0.2). The mean includes the triplets whose loss is 0.

    # Parameters

    anchor, positive, negative : raw rows `(N, d)`, of which row i of each is a triplet.
    margin : the distance by which a negative should be further away than the positive.
    squared : whether to square the distances.
    reduction : `"mean"` or `"sum"` over the N triplets, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if the shapes differ or the reduction is unknown.
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
    terms = (near - far + margin).clamp_min(0)
    return numerics.reduced(terms, reduction, anchor, positive, negative)


@numerics.full_precision
def all_triplets_loss(
    embeddings: Tensor,
    labels: Tensor,
    margin: float = 1.0,
    squared: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Compute the triplet loss of all triplets of a batch without forming the triplets.

    A batch may have M^3 triplets. The negatives of each anchor are therefore sorted by distance. A
    positive at distance D has a loss with the first `count` of them, which are nearer than
    D + margin, and these losses add up to `count * (D + margin)` minus the sum of their distances.
    Memory grows with M^2 and time with M^2 log M.

    # Parameters

    embeddings : raw embeddings `(M, d)`.
    labels : their classes `(M,)`.
    margin, squared : see `triplet_loss`.
    reduction : `"mean"` or `"sum"` over all triplets.

    # Raises

    `ValueError` : if the reduction is another one. `"none"` is impossible, as the losses of single
        triplets are never computed.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"Unknown reduction '{reduction}': expected one of mean, sum (the terms of all "
            "triplets are never made; 'triplet_loss' has 'none', for given ones)."
        )
    measure = squared_distances if squared else euclidean_distances
    # Sums of many distances are subtracted from each other, which needs the digits of float64.
    distances = measure(embeddings, embeddings).double()  # (M, M)
    same, positive = numerics.same_label(labels), numerics.positive_pairs(labels)
    triplets = (positive.sum(dim=1) * (~same).sum(dim=1)).sum()
    far = distances.masked_fill(same, math.inf).sort(dim=1).values  # (M, M)
    sums = pad(far.masked_fill(far.isinf(), 0).cumsum(dim=1), (1, 0))  # (M, 1 + M)
    limits = distances + margin
    count = torch.searchsorted(far.detach(), limits.detach())  # (M, M)
    total = (count * limits - sums.gather(1, count)).where(positive, 0).sum()
    return (total / triplets.clamp_min(1) if reduction == "mean" else total).to(embeddings.dtype)


@Objective.register("triplet")
class Triplet(MetricLearningObjective):
    """The triplet loss over all triplets of the 2N rows of both views, or over given triplets.

    `forward(anchors, positives)` computes `all_triplets_loss`. With `negatives` `(N * K, d)`, K for
    each anchor, it computes `triplet_loss` of these triplets, whatever their labels.

    # Parameters

    margin : the distance by which a negative should be further away than the positive, such as 1
        for raw embeddings of texts and 0.2 for unit vectors.
    squared : whether to square the distances.
    normalize_embeddings : whether to scale embeddings to length 1 first.
    reduction : `"mean"` or `"sum"` over all triplets.
    """

    def __init__(
        self,
        margin: float = 1.0,
        squared: bool = False,
        normalize_embeddings: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.margin = numerics.at_least_zero("margin", margin)
        self.squared = squared
        self.normalize_embeddings = normalize_embeddings
        self.reduction = numerics.scalar_reduction(reduction)

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
        # The negatives of an anchor follow each other, so its row is repeated for each of them.
        several = len(negatives) // max(1, len(anchors))
        if several > 1 and len(negatives) == several * len(anchors):
            anchors, positives = (
                view.repeat_interleave(several, dim=0) for view in (anchors, positives)
            )
        anchors, positives, negatives = map(self._scaled, (anchors, positives, negatives))
        settings = self.margin, self.squared, self.reduction
        return triplet_loss(anchors, positives, negatives, *settings)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        rows = self._scaled(embeddings)
        return all_triplets_loss(rows, labels, self.margin, self.squared, self.reduction)

    def _scaled(self, rows: Tensor) -> Tensor:
        return numerics.unit(rows) if self.normalize_embeddings else rows
