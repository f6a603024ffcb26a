"""The contrastive loss over pairs (Chopra et al., 2005; Hadsell et al., 2006)."""

import torch
from torch import Tensor

from declutr.objectives.checks import above_zero, scalar_reduction
from declutr.objectives.numerics import (
    euclidean_distances,
    full_precision,
    reduced,
    same_label,
    unit,
)
from declutr.objectives.objective import MetricLearningObjective, Objective


@full_precision
def contrastive_loss(
    embeddings: Tensor, labels: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Pairs of one label together, others at least `margin` apart.

    The term of an unordered pair is `D^2` if the labels are equal and `max(0, margin - D)^2` if
    not, D the Euclidean distance of raw rows. Hadsell et al. (equation 4) halve both. It is not the
    `ContrastiveLoss` of pytorch-metric-learning: that one has neither square, works on unit
    vectors, and averages the non-zero terms of both kinds apart.

    # Parameters

    embeddings : `(M, d)`. labels : `(M,)`.
    margin : how far apart is far enough.
    reduction : `"mean"` over the M (M - 1) / 2 pairs, `"sum"`, or `"none"`, in the order
        (0, 1), (0, 2), ...

    # Raises

    `ValueError` : an unknown reduction.
    """
    distances = euclidean_distances(embeddings, embeddings)  # (M, M)
    lacking = (margin - distances).clamp_min(0)  # (M, M)
    size = len(distances)
    first, second = torch.triu_indices(size, size, offset=1, device=distances.device)
    terms = distances.where(same_label(labels), lacking)[first, second].pow(2)
    return reduced(terms, reduction, embeddings)


@Objective.register("contrastive")
class Contrastive(MetricLearningObjective):
    """The contrastive loss over the 2N rows of both views; see `contrastive_loss`.

    # Parameters

    margin : how far apart is far enough.
    normalize_embeddings : scale rows to length 1 before.
    reduction : `"mean"` or `"sum"`.
    """

    def __init__(
        self, margin: float = 1.0, normalize_embeddings: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.margin = above_zero("margin", margin)
        self.normalize_embeddings = normalize_embeddings
        self.reduction = scalar_reduction(reduction)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        rows = unit(embeddings) if self.normalize_embeddings else embeddings
        return contrastive_loss(rows, labels, self.margin, self.reduction)
