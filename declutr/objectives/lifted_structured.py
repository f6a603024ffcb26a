"""The lifted structured loss (Oh Song et al., 2016)."""

import math

import torch

from declutr.objectives.distances import euclidean_distances, same_label, unit
from declutr.objectives.full_precision import full_precision
from declutr.objectives.metric_learning import MetricLearningObjective
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import reduced_where
from declutr.objectives.settings import at_least_zero, scalar_reduction


@full_precision
def lifted_structured_loss(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    margin: float = 1.0,
    hinge: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """Every positive pair against all negatives of both its rows.

    `J_ij = D_ij + log(sum_k exp(margin - D_ik) + sum_l exp(margin - D_jl))`, k and l over the rows
    of other labels, and the loss is the mean of `max(0, J_ij)^2 / 2` over unordered positive pairs
    (Oh Song et al., 2016, equation 4); `hinge` has the largest term for the logarithm (equation 3).
    D is the Euclidean distance of raw rows. Without negatives there are no terms.

    # Parameters

    embeddings : `(M, d)`. labels : `(M,)`.
    margin : what a negative should be further away.
    hinge : the hardest negative instead of all of them.
    reduction : `"mean"`, `"sum"`, or `"none"`, a term for each unordered positive pair.

    # Raises

    `ValueError` : an unknown reduction.
    """
    distances = euclidean_distances(embeddings, embeddings)  # (M, M)
    same = same_label(labels)
    several = ~same.all()  # One label: no row has a negative. Two labels: every row has one.
    near = (margin - distances).masked_fill(same & several, -math.inf)  # (M, M)
    if hinge:
        hardest = near.amax(dim=1)  # (M,)
        negatives = torch.maximum(hardest.unsqueeze(1), hardest)  # (M, M)
    else:
        all_of_them = near.logsumexp(dim=1)  # (M,)
        negatives = torch.logaddexp(all_of_them.unsqueeze(1), all_of_them)  # (M, M)
    terms = (distances + negatives).relu().square()  # (M, M)
    return reduced_where(same.triu(1) & several, terms, reduction) / 2


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

    def labelled_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = unit(embeddings) if self.normalize_embeddings else embeddings
        return lifted_structured_loss(rows, labels, self.margin, self.hinge, self.reduction)
