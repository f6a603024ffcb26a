"""The soft nearest neighbour loss (Frosst et al., 2019)."""

import math

import torch
from torch import Tensor

from declutr.objectives.checks import above_zero, one_of, scalar_reduction
from declutr.objectives.numerics import (
    full_precision,
    positive_pairs,
    reduced_where,
    squared_distances,
    unit,
)
from declutr.objectives.objective import MetricLearningObjective, Objective

DISTANCES = ("squared_euclidean", "cosine")


@full_precision
def soft_nearest_neighbour_loss(
    embeddings: Tensor,
    labels: Tensor,
    temperature: float = 1.0,
    distance: str = "squared_euclidean",
    reduction: str = "mean",
) -> Tensor:
    """How much nearer a row is to rows of its own label than to all others.

    `l_i = log sum_{k != i} exp(-D_ik / tau) - log sum_{j != i, y_j = y_i} exp(-D_ij / tau)`
    (Frosst et al., 2019, definition 1). D is a distance: surveys that call it a similarity keep the
    minus sign. Rows that are alone with their label are left out.

    # Parameters

    embeddings : `(M, d)`. labels : `(M,)`.
    temperature : tau.
    distance : `"squared_euclidean"` of raw rows, or `"cosine"`, 1 - cos.
    reduction : `"mean"`, `"sum"`, or `"none"`, the terms of the rows that are not left out.

    # Raises

    `ValueError` : an unknown distance or reduction.
    """
    one_of("distance", distance, DISTANCES, ValueError)
    if distance == "cosine":
        rows = unit(embeddings)
        distances = 1 - rows @ rows.T  # (M, M)
    else:
        distances = squared_distances(embeddings, embeddings)  # (M, M)
    positive = positive_pairs(labels)
    accompanied = positive.any(dim=1)  # (M,)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # A row that is left out keeps all, so that it is never a sum of nothing.
    counts = accompanied.unsqueeze(1)  # (M, 1)
    nearness = (-distances / temperature).masked_fill(itself & counts, -math.inf)  # (M, M)
    own = nearness.masked_fill(~positive & counts, -math.inf)
    terms = nearness.logsumexp(dim=1) - own.logsumexp(dim=1)
    return reduced_where(accompanied, terms, reduction)


@Objective.register("soft_nearest_neighbours")
class SoftNearestNeighbours(MetricLearningObjective):
    """The soft nearest neighbour loss over the 2N rows of both views; see
    `soft_nearest_neighbour_loss`.

    # Parameters

    temperature : tau, above 0.
    distance : `"squared_euclidean"` or `"cosine"`.
    reduction : `"mean"` or `"sum"`.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        distance: str = "squared_euclidean",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.temperature = above_zero("temperature", temperature)
        self.distance = one_of("distance", distance, DISTANCES)
        self.reduction = scalar_reduction(reduction)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return soft_nearest_neighbour_loss(
            embeddings, labels, self.temperature, self.distance, self.reduction
        )
